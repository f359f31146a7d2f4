// Runs jrs.js, which is given as text on stdin, in a page of a few parts that only this script knows.
"use strict";
const assert = require("node:assert");
const vm = require("node:vm");

let shown; // The parts of the page in the browser.
let served; // Those that the server has now, by name.
let status = 200;
let fetches = 0;
const timers = [];
const delays = [];
const streams = [];
const heard = { main: {}, appended: [] };
const body = { name: "body" };

function part(name, text) {
  return {
    dataset: { part: name },
    outerHTML: text,
    querySelector: () => null,
    contains: (one) => one === name,
    append: (one) => heard.appended.push(one.textContent),
    replaceWith: (one) => shown.splice(shown.findIndex((old) => old.dataset.part === name), 1, one),
  };
}
const parts = (texts) => Object.entries(texts).map(([name, text]) => part(name, text));
const main = {
  dataset: { events: "/v1/events" },
  querySelectorAll: () => shown,
  querySelector: () => shown.find((one) => one.dataset.part === "problem"),
  prepend: (one) => shown.unshift(one),
  replaceChildren: (...fresh) => (shown = fresh),
  addEventListener: (name, call) => (heard.main[name] = call),
};
const live = { textContent: "", old: false, classList: { toggle: (_, is) => (live.old = is) } };
const document = {
  querySelector: () => main, getElementById: () => live, activeElement: body,
  createElement: () => ({}),
};
class EventSource {
  static CONNECTING = 0;
  static OPEN = 1;
  static CLOSED = 2;
  readyState = EventSource.CONNECTING;
  heard = {};
  constructor() {
    streams.push(this);
  }
  addEventListener(name, call) {
    this.heard[name] = call;
  }
  // What a browser does: it opens the stream, tries again by itself, or gives up.
  becomes(state) {
    this.readyState = state;
    this.heard[state === EventSource.OPEN ? "open" : "error"]?.();
  }
}
const changed = () => streams.at(-1).heard.changed();
class DOMParser {
  parseFromString(text) {
    const fresh = parts(JSON.parse(text));
    const problem = fresh.find((one) => one.dataset.part === "problem");
    const main = { querySelectorAll: () => fresh, querySelector: () => problem, childNodes: fresh };
    return { querySelector: () => main };
  }
}
const fetch = async () => {
  fetches++;
  return { ok: status === 200, status, text: async () => JSON.stringify(served) };
};
const setTimeout_ = (call, delay) => {
  timers.push(call);
  delays.push(delay);
};
const window = { EventSource, addEventListener: () => {} };
const page = () => shown.map((one) => one.outerHTML).join(" ");

async function settle() {
  do {
    timers.splice(0).forEach((call) => call());
    await new Promise((done) => setImmediate(done));
  } while (timers.length);
}

async function run(script) {
  shown = parts({ a: "a1", b: "b1" });
  vm.runInNewContext(script, {
    document, window, EventSource, DOMParser, fetch, setTimeout: setTimeout_, location: { href: "/" },
  });

  streams[0].becomes(EventSource.OPEN);

  // What changed between the rendering and the first event.
  served = { a: "a2", b: "b1" };
  changed();
  await settle();
  assert.strictEqual(page(), "a2 b1");
  assert.strictEqual(live.textContent, "This page is live.");

  // A part that has the focus stays, and is renewed once the focus has left it.
  document.activeElement = "a";
  served = { a: "a3", b: "b3" };
  changed();
  await settle();
  assert.strictEqual(page(), "a2 b3");
  assert.match(live.textContent, /but for the part that has the focus/);
  document.activeElement = body;
  heard.main.focusout();
  await settle();
  assert.strictEqual(page(), "a3 b3");
  assert.strictEqual(live.textContent, "This page is live.");
  const before = fetches;
  heard.main.focusout();
  await settle();
  assert.strictEqual(fetches, before);

  // While the page cannot be had, the last one stays below what says so. It is fetched again without
  // a further event.
  status = 503;
  served = { problem: "p" };
  changed();
  await new Promise((done) => setImmediate(done));
  assert.strictEqual(page(), "p a3 b3");
  served = { problem: "q" };
  timers.splice(0).forEach((call) => call());
  await new Promise((done) => setImmediate(done));
  assert.strictEqual(page(), "q a3 b3");
  assert.match(heard.appended.pop(), /^What follows was read at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.$/);
  assert.match(live.textContent, /^The page cannot be renewed now\. This page was read at \d{4}-/);
  assert.ok(live.old);
  status = 200;
  served = { a: "a4", b: "b4" };
  await settle();
  assert.strictEqual(page(), "a4 b4");
  assert.strictEqual(live.textContent, "This page is live.");
  assert.ok(!live.old);

  // The browser itself connects anew where nothing answers.
  streams[0].becomes(EventSource.CONNECTING);
  await settle();
  assert.match(live.textContent, /^The server does not answer\. This page was read at/);
  assert.ok(live.old);
  assert.strictEqual(streams.length, 1);

  // A server that was restarted knows no login: the stream is tried again, ever more seldom.
  status = 401;
  delays.length = 0;
  for (let refused = 1; refused < 12; refused++) {
    streams.at(-1).becomes(EventSource.CLOSED);
    await settle();
    assert.match(live.textContent, /^You are logged out: run “jrs open”.* This page was read at/);
    assert.ok(live.old);
    assert.strictEqual(page(), "a4 b4");
    assert.strictEqual(streams.length, refused + 1);
  }
  assert.ok(delays.every((delay) => delay >= 1000 && delay <= 30000));
  assert.ok(delays.includes(2000) && delays.includes(30000));

  // So it is where no stream can be had; meanwhile the page is renewed at each try.
  status = 200;
  served = { a: "a5", b: "b5" };
  streams.at(-1).becomes(EventSource.CLOSED);
  await settle();
  assert.strictEqual(page(), "a5 b5");
  assert.match(live.textContent, /^This page is not live now\. This page was read at/);

  // After the next login it is live again.
  served = { a: "a6", b: "b6" };
  streams.at(-1).becomes(EventSource.OPEN);
  changed();
  await settle();
  assert.strictEqual(page(), "a6 b6");
  assert.strictEqual(live.textContent, "This page is live.");
  assert.ok(!live.old);
  delays.length = 0;
  streams.at(-1).becomes(EventSource.CLOSED);
  assert.deepStrictEqual(delays, [2000]);
}

run(require("node:fs").readFileSync(0, "utf8")).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
