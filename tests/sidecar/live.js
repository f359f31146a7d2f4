// Runs jrs.js, which is given as text on stdin, in a page of a few parts that only this script knows.
"use strict";
const assert = require("node:assert");
const vm = require("node:vm");

let shown; // The parts of the page in the browser.
let served; // Those that the server has now, by name.
let status = 200;
let fetches = 0;
const timers = [];
const heard = { stream: {}, main: {}, appended: [] };
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
  addEventListener(name, call) {
    heard.stream[name] = call;
  }
}
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
const setTimeout_ = (call) => timers.push(call);
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

  // What changed between the rendering and the first event.
  served = { a: "a2", b: "b1" };
  heard.stream.changed();
  await settle();
  assert.strictEqual(page(), "a2 b1");
  assert.strictEqual(live.textContent, "This page is live.");

  // A part that has the focus stays, and is renewed once the focus has left it.
  document.activeElement = "a";
  served = { a: "a3", b: "b3" };
  heard.stream.changed();
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
  heard.stream.changed();
  await new Promise((done) => setImmediate(done));
  assert.strictEqual(page(), "p a3 b3");
  served = { problem: "q" };
  timers.splice(0).forEach((call) => call());
  await new Promise((done) => setImmediate(done));
  assert.strictEqual(page(), "q a3 b3");
  assert.match(heard.appended.pop(), /^What follows was read at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.$/);
  assert.match(live.textContent, /cannot be renewed now; it was read at/);
  assert.ok(live.old);
  status = 200;
  served = { a: "a4", b: "b4" };
  await settle();
  assert.strictEqual(page(), "a4 b4");
  assert.strictEqual(live.textContent, "This page is live.");
  assert.ok(!live.old);
  heard.stream.error();
  assert.match(live.textContent, /The server does not answer; this page was read at/);
  assert.ok(live.old);
}

run(require("node:fs").readFileSync(0, "utf8")).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
