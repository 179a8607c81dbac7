"use strict";
// Everything from the broker is put into the page as text (textContent), never as
// markup: topics, patterns, names, payloads and errors may hold anything.

// What would be invisible or would turn the text around it (control characters, marks
// of direction) is shown as an escape, so that no name looks like another.

const $ = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");
const period = 1000; // ms between looks while the page is visible
const patience = 10000; // ms to wait for an answer
const keepTail = 400; // more than the server keeps, so that a notice of drops is seen

function element(tag, properties, ...children) {
  const e = Object.assign(document.createElement(tag), properties);
  e.append(...children);
  return e;
}

const hidden = /[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const escape = (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0");
const lines = (text) => text.replace(hidden, escape); // keeps line breaks and tabs
const plain = (text) => text.replace(hidden, escape).replace(/[\n\t]/g, escape);
const short = (text, length) => text.length > length ? text.slice(0, length) + "..." : text;
const label = (id, name) => "#" + id + (name ? " · " + plain(name) : "");

// setText leaves an unchanged text alone, so that selections and screen readers are too.
function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

function clock(time) {
  const d = new Date(time);
  return isNaN(d) ? String(time) : d.toLocaleTimeString("en-GB") + "." + String(d.getMilliseconds()).padStart(3, "0");
}

function seconds(ms) {
  if (ms < 1000) return "< 1 s";
  if (ms < 120000) return Math.floor(ms / 1000) + " s";
  return ms < 7200000 ? Math.floor(ms / 60000) + " min" : Math.floor(ms / 3600000) + " h";
}

// ---- State: totals, subscriptions, dead letters, topics, match

let last = null; // the state before, for rates
const rows = new Map(); // by subscription id: the row's cells, what was last seen
const calls = new Map(); // by subscription id: the message running, since when, whether longer
const letters = new Map(); // by what identifies a dead letter: its item
let topic = "";

const totals = [
  ["published", "Published"], ["unrouted", "Unrouted"], ["matched", "Matched"], ["delivered", "Delivered"],
  ["failed", "Failed"], ["dropped", "Dropped"], ["queued", "Queued"], ["running", "Running"],
  ["subscriptions", "Subscriptions"], ["topics", "Topics"],
].map(([key, label]) => {
  const value = element("dd"), rate = element("span", { className: "rate" });
  $("totals").append(element("div", {}, element("dt", { textContent: label }), value, rate));
  return { key, value, rate };
});

function rateText(now, before, elapsed) {
  if (before === undefined || elapsed <= 0 || now <= before) return "";
  const rate = (now - before) / elapsed;
  return (rate < 10 ? rate.toFixed(1) : number.format(Math.round(rate))) + "/s";
}

function newRow() {
  // A phone's layout takes the table's roles away: they are said again.
  const cell = (className) => element("td", { role: "cell", className: className || "" }, element("span"), element("span", { className: "rate" }));
  const row = { tr: element("tr", { role: "row" }), cells: {} };
  row.pattern = element("code");
  row.name = element("span", { className: "rate" });
  row.cells.subscription = element("td", { role: "cell" }, row.pattern, row.name);
  for (const [key, heading, className] of [["mode", "Mode"], ["queue", "Queue"], ["running", "Running"],
    ["delivered", "Delivered", "number"], ["failed", "Failed", "number"], ["dropped", "Dropped", "number"]]) {
    row.cells[key] = cell(className);
    row.cells[key].dataset.label = heading;
  }
  row.fill = element("i");
  row.bar = element("div", { className: "bar" }, row.fill);
  row.cells.queue.append(row.bar);
  row.tr.append(...Object.values(row.cells));
  return row;
}

function setCell(td, text, note) {
  setText(td.firstChild, text);
  setText(td.children[1], note || "");
}

// runningFor: the same message seen again is a call that has been running since, also
// when the filter hid it meanwhile. One that ran at the first look may be older.
function runningFor(s, now) {
  let call = calls.get(s.id);
  if (!s.runningMessage) calls.delete(s.id);
  else if (!call || call.message !== s.runningMessage) {
    if (calls.size > 5000) calls.clear();
    calls.set(s.id, call = { message: s.runningMessage, since: now, longer: !last });
  }
  if (!s.runningMessage) return { ms: 0, text: "" };
  const ms = now - call.since;
  return { ms, text: !call.longer ? seconds(ms) : ms < 1000 ? "running" : "over " + seconds(ms) };
}

function showSubscription(s, elapsed, now) {
  let row = rows.get(s.id);
  if (!row) rows.set(s.id, row = newRow());
  setText(row.pattern, plain(s.pattern));
  setText(row.name, label(s.id, s.name));
  setCell(row.cells.mode, s.mode, s.policy.replace("_", " "));
  if (s.size > 0) {
    setCell(row.cells.queue, number.format(s.queued) + " of " + number.format(s.size));
    const share = Math.min(100, 100 * s.queued / s.size);
    row.fill.style.width = share + "%";
    row.bar.classList.toggle("full", share >= 90);
    row.bar.hidden = false;
  } else {
    setCell(row.cells.queue, "none");
    row.bar.hidden = true;
  }
  const age = runningFor(s, now);
  setCell(row.cells.running,
    s.running === 0 ? "idle" : s.runningMessage ? age.text : number.format(s.running) + (s.running > 1 ? " calls" : " call"),
    s.runningMessage ? "message " + s.runningMessage : "");
  row.cells.running.classList.toggle("warn", s.runningMessage > 0 && age.ms >= 5000);
  for (const key of ["delivered", "failed", "dropped"]) {
    setCell(row.cells[key], number.format(s[key]), rateText(s[key], row.seen && row.seen[key], elapsed));
  }
  row.cells.failed.classList.toggle("bad", s.failed > 0);
  row.cells.dropped.classList.toggle("warn", s.dropped > 0);
  row.seen = s;
  return row.tr;
}

function showSubscriptions(state, elapsed, now) {
  const body = document.querySelector("#subscriptions tbody");
  const wanted = state.subscriptions.map((s) => showSubscription(s, elapsed, now));
  wanted.forEach((tr, i) => { if (body.children[i] !== tr) body.insertBefore(tr, body.children[i] || null); });
  while (body.children.length > wanted.length) body.lastChild.remove();
  const ids = new Set(state.subscriptions.map((s) => s.id));
  for (const id of rows.keys()) if (!ids.has(id)) rows.delete(id);
  const all = state.stats.subscriptions;
  setText($("shown"), wanted.length === all ? number.format(all)
    : number.format(wanted.length) + " shown, " + number.format(state.filtered) + " pass the filter, " + number.format(all) + " in all");
  setText($("none"), all ? "No subscription passes the filter." : "None.");
  $("none").hidden = wanted.length > 0;
}

function detail(list, term, text, tag) {
  if (text === "") return;
  list.append(element("dt", { textContent: term }), element("dd", {}, element(tag || "code", { textContent: lines(text) })));
}

function newLetter(l) {
  const list = element("dl");
  detail(list, "subscription", label(l.subscriptionId, l.subscriptionName));
  detail(list, "pattern", plain(l.pattern));
  detail(list, "topic", plain(l.topic));
  detail(list, "message", String(l.messageId));
  detail(list, "payload", l.payload);
  detail(list, "error", l.error);
  detail(list, "stack", l.stack, "pre");
  list.querySelectorAll("pre").forEach((pre) => { pre.tabIndex = 0; });
  const failed = ["error", "panic", "goexit"].includes(l.reason);
  return element("li", {}, element("details", {}, element("summary", {},
    element("span", { className: "note", textContent: clock(l.time) + " " }),
    element("span", { className: "tag " + (failed ? "bad" : "warn"), textContent: l.reason.replace("_", " ") }), " ",
    element("code", { textContent: plain(short(l.topic, 80)) }),
    element("span", { className: "note", textContent: l.error ? " " + plain(short(l.error, 120)) : "" })), list));
}

function showLetters(state) {
  const list = $("letters"), seen = new Set();
  state.deadLetters.forEach((l, i) => {
    let key = [l.time, l.messageId, l.subscriptionId, l.reason].join(" ");
    while (seen.has(key)) key += "+"; // Redelivered at the same moment.
    seen.add(key);
    let li = letters.get(key);
    if (!li) letters.set(key, li = newLetter(l));
    if (list.children[i] !== li) list.insertBefore(li, list.children[i] || null);
  });
  for (const [key, li] of letters) {
    // One that is being read stays, below the newest.
    if (seen.has(key) || li.firstChild.open || li.contains(document.activeElement)) continue;
    li.remove();
    letters.delete(key);
  }
  setText($("letter-count"), number.format(state.letters) + " in all" + (state.letters > seen.size ? ", newest " + seen.size : ""));
  $("no-letters").hidden = letters.size > 0;
}

function showTexts(list, texts) {
  texts.forEach((text, i) => {
    if (!list.children[i]) list.append(element("li", {}, element("code")));
    setText(list.children[i].firstChild, plain(text));
  });
  while (list.children.length > texts.length) list.lastChild.remove();
}

function showMatch(match) {
  if (!match) return;
  setText($("match-result"), match.error ? match.error
    : match.total === 0 ? "No subscription matches." : number.format(match.total) + (match.total === 1 ? " subscription matches" : " subscriptions match"));
  $("match-result").classList.toggle("bad", match.error !== "");
  showTexts($("matches"), match.subscriptions.map((s) => "#" + s.id + "  " + s.pattern + (s.name ? " · " + s.name : "")));
}

function show(state) {
  const now = performance.now();
  const elapsed = last ? (now - last.at) / 1000 : 0;
  for (const t of totals) {
    setText(t.value, number.format(state.stats[t.key]));
    const counts = !["queued", "running", "subscriptions", "topics"].includes(t.key);
    setText(t.rate, counts ? rateText(state.stats[t.key], last && last.state.stats[t.key], elapsed) : "");
  }
  showSubscriptions(state, elapsed, now);
  showLetters(state);
  setText($("topic-count"), state.stats.topics ? number.format(state.stats.topics) : "none");
  showTexts($("topics"), state.topics);
  showMatch(state.match);
  last = { state, at: now };
}

let timer = 0, request = null, paused = false;

async function look() {
  clearTimeout(timer);
  if (request) request.abort();
  const mine = request = new AbortController();
  const query = new URLSearchParams({ filter: $("filter").value, sort: $("sort").value, topic });
  try {
    const answer = await fetch("api/state?" + query, { signal: AbortSignal.any([mine.signal, AbortSignal.timeout(patience)]) });
    if (!answer.ok) throw new Error(answer.status + " " + (await answer.text()).slice(0, 200));
    const state = await answer.json();
    if (mine !== request) return;
    show(state);
    setText($("status"), paused ? "paused" : "live");
    $("status").classList.remove("bad");
  } catch (err) {
    if (mine !== request || err.name === "AbortError") return;
    setText($("status"), "no answer: " + err.message);
    $("status").classList.add("bad");
  }
  if (!document.hidden && !paused) timer = setTimeout(look, period);
}

$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  setText($("pause"), paused ? "Resume" : "Pause");
  setText($("status"), paused ? "paused" : "live");
  clearTimeout(timer);
  if (!paused) look();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) look(); });
$("filter").addEventListener("input", look);
$("sort").addEventListener("change", look);
$("match-form").addEventListener("submit", (event) => {
  event.preventDefault();
  topic = $("topic").value;
  if (topic === "") {
    showTexts($("matches"), []);
    setText($("match-result"), "Shows which subscriptions a topic reaches.");
  }
  look();
});

// ---- Live tail

let tail = null, tailShown = 0, tailDropped = 0;

function addTail(li) {
  $("tail").prepend(li);
  while ($("tail").children.length > keepTail) $("tail").lastChild.remove();
}

function stopTail(text) {
  if (tail) tail.close();
  tail = null;
  setText($("tail-button"), "Start");
  setText($("tail-status"), text);
}

// startTail asks with fetch when the stream fails at once, since an EventSource does not
// say what the answer was.
function startTail(pattern) {
  const url = "api/tail?" + new URLSearchParams({ pattern });
  const mine = tail = new EventSource(url);
  let opened = false;
  tailShown = tailDropped = 0;
  $("tail").replaceChildren();
  setText($("tail-button"), "Stop");
  setText($("tail-status"), "Connecting.");
  setText($("tail-count"), "");
  const count = () => setText($("tail-count"), "· " + number.format(tailShown) + " messages" +
    (tailDropped ? ", " + number.format(tailDropped) + " dropped: they came faster than this page reads" : ""));
  mine.addEventListener("open", () => { opened = true; setText($("tail-status"), "Reading " + plain(pattern)); });
  mine.addEventListener("message", (event) => {
    const m = JSON.parse(event.data);
    tailShown++;
    addTail(element("li", {}, element("span", { className: "note", textContent: clock(m.time) + " #" + m.id + " " }),
      element("code", { textContent: plain(m.topic) }), " ", element("span", { className: "mono note", textContent: lines(short(m.payload, 500)) })));
    count();
  });
  mine.addEventListener("dropped", (event) => {
    tailDropped += Number(event.data);
    addTail(element("li", { className: "warn", textContent: number.format(Number(event.data)) + " dropped" }));
    count();
  });
  mine.addEventListener("end", () => stopTail("The broker is closed."));
  mine.addEventListener("error", async () => {
    if (mine !== tail) return;
    stopTail(opened ? "The stream ended." : "Refused.");
    if (opened) return;
    const answer = await fetch(url, { signal: AbortSignal.timeout(2000) }).catch(() => null);
    if (answer && !answer.ok) setText($("tail-status"), (await answer.text()).trim());
    else if (answer) answer.body.cancel();
  });
}

$("tail-form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (tail) stopTail("Stopped."); else startTail($("tail-pattern").value);
});
window.addEventListener("pagehide", () => { if (tail) stopTail("Stopped."); });

look();
