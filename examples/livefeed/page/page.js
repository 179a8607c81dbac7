"use strict";

// The page of livefeed. Topics and payloads come from strangers: they are only ever put
// into textContent, so that they are text and never markup.

const shown = 200; // events on the page
const longest = 2000; // characters of one payload on the page

const $ = (id) => document.getElementById(id);

let source = null; // the EventSource
let retry = 0; // the timer of the next attempt
let interrupted = false; // the stream was open before, and there may be a gap
let received = 0;
let dropped = 0;
let paused = false;
let waiting = []; // what is not on the page yet, oldest first: at most shown
let frame = 0;

function connect() {
	disconnect();
	const pattern = $("pattern").value;
	history.replaceState(null, "", "?" + new URLSearchParams({ pattern }));
	const url = "events?" + new URLSearchParams({ pattern });
	status("connecting", "");
	source = new EventSource(url);
	source.onopen = () => {
		fault("");
		status("connected", "open");
		if (interrupted) notice("Connected again. Events in between are missing.");
		interrupted = false;
	};
	source.onmessage = (e) => {
		received++;
		// The payload is shown as it came: parsed, numbers may change and depth may fail.
		// Before it no other quote of a string can stand like this.
		const key = ',"payload":', at = e.data.indexOf(key);
		const event = JSON.parse(e.data.slice(0, at) + "}");
		event.payload = shorten(e.data.slice(at + key.length, -1));
		add(event);
	};
	source.addEventListener("dropped", (e) => {
		const { count } = JSON.parse(e.data);
		dropped += count;
		notice(count === 1 ? "1 event was dropped: this browser was too slow."
			: count + " events were dropped: this browser was too slow.");
	});
	source.addEventListener("end", () => notice("The service is shutting down."));
	source.onerror = () => {
		if (source.readyState === EventSource.CLOSED) {
			explain(url);
		} else { // The browser tries again by itself.
			interrupted = true;
			status("connection lost, trying again", "closed");
		}
	};
}

function disconnect() {
	clearTimeout(retry);
	if (source) source.close();
	source = null;
}

// explain finds out why the service has refused the stream, which EventSource does not
// say, and tries again later unless the pattern is to blame.
async function explain(url) {
	const refused = source;
	let text = "the service does not answer", again = true;
	const abort = new AbortController();
	try {
		const answer = await fetch(url, { signal: abort.signal, cache: "no-store" });
		if (answer.ok) {
			text = "";
		} else {
			text = (await answer.json()).error;
			again = answer.status >= 500;
		}
	} catch {
		// It does not answer.
	}
	abort.abort();
	if (source !== refused) return; // The user has subscribed to something else.
	if (text) fault(text);
	status(again ? "not connected, trying again" : "not connected", "closed");
	if (again) retry = setTimeout(connect, text ? 3000 : 0);
}

function status(text, name) {
	$("status").textContent = text;
	$("status").className = name;
}

// fault says what is wrong until the stream is open or the user changes something. It
// does not say the same again.
function fault(text) {
	if ($("subscribe-error").textContent === text) return;
	$("subscribe-error").textContent = text;
	$("pattern").setAttribute("aria-invalid", text !== "");
}

// add takes an event, or the text of a notice.
function add(item) {
	waiting.push(item);
	if (waiting.length > shown) waiting.shift();
	schedule();
}

function notice(text) { add(text); }

// schedule draws at most once a frame, however many events come.
function schedule() {
	if (!frame) frame = requestAnimationFrame(draw);
}

function draw() {
	frame = 0;
	const counts = received + " received, " + dropped + " dropped";
	$("counts").textContent = paused && waiting.length ? counts + ", " + waiting.length + " waiting" : counts;
	if (paused) return;
	const rows = document.createDocumentFragment();
	for (const item of waiting.reverse()) {
		rows.append(typeof item === "string" ? noticeRow(item) : eventRow(item));
	}
	waiting = [];
	const list = $("events");
	list.prepend(rows);
	while (list.childElementCount > shown) list.lastElementChild.remove();
	$("none").hidden = list.childElementCount > 0;
}

function eventRow(event) {
	const row = document.createElement("li");
	row.append(
		element("span", "topic", event.topic),
		element("span", "about", "  #" + event.id + "  " + new Date(event.time).toLocaleTimeString()),
		element("div", "text", event.payload));
	return row;
}

function shorten(text) {
	if (text.length <= longest) return text;
	return text.slice(0, longest) + " ... " + (text.length - longest) + " more characters";
}

function noticeRow(text) { return element("li", "notice", text); }

function element(name, className, text) {
	const e = document.createElement(name);
	e.className = className;
	// Characters that turn the direction of the text would make it read as something else.
	e.textContent = text.replace(/[\p{Bidi_C}\u007F-\u009F\u2028\u2029]/gu,
		(c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
	return e;
}

$("subscribe").addEventListener("submit", (e) => {
	e.preventDefault();
	interrupted = false;
	fault("");
	connect();
});

$("publish").addEventListener("submit", async (e) => {
	e.preventDefault();
	let text = "";
	try {
		const answer = await fetch("events/" + encodeURIComponent($("topic").value), {
			method: "POST",
			headers: { "Content-Type": "application/json" },
			body: $("payload").value,
		});
		const body = await answer.json();
		text = answer.ok ? "accepted, event #" + body.id : "refused: " + body.error;
	} catch {
		text = "the service does not answer";
	}
	$("published").textContent = text;
});

$("pause").addEventListener("click", () => {
	paused = !paused;
	$("pause").setAttribute("aria-pressed", paused);
	$("pause").textContent = paused ? "Resume" : "Pause";
	schedule();
});

$("clear").addEventListener("click", () => {
	waiting = [];
	$("events").replaceChildren();
	received = dropped = 0;
	schedule();
});

$("pattern").value = new URLSearchParams(location.search).get("pattern") || $("pattern").value;
connect();
