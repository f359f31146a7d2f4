// Runs jrs.js, which is given as text on stdin, in a page of a few parts that only this script knows.
"use strict";
const assert = require("node:assert");
const vm = require("node:vm");

let shown; // The parts of the page in the browser.
let served; // Those that the server has now, by name.
let status = 200;
let fetches = 0;
const timers = [];
const heard = { stream: {}, main: {} };
const body = { name: "body" };

function part(name, text) {
  return {
    dataset: { part: name },
    outerHTML: text,
    querySelector: () => null,
    contains: (one) => one === name,
    replaceWith: (one) => shown.splice(shown.findIndex((old) => old.dataset.part === name), 1, one),
  };
}
const parts = (texts) => Object.entries(texts).map(([name, text]) => part(name, text));
const main = {
  dataset: { events: "/v1/events" },
  querySelectorAll: () => shown,
  replaceChildren: (...fresh) => (shown = fresh),
  addEventListener: (name, call) => (heard.main[name] = call),
};
const live = { textContent: "" };
const document = { querySelector: () => main, getElementById: () => live, activeElement: body };
class EventSource {
  addEventListener(name, call) {
    heard.stream[name] = call;
  }
}
class DOMParser {
  parseFromString(text) {
    const fresh = parts(JSON.parse(text));
    return { querySelector: () => ({ querySelectorAll: () => fresh, childNodes: fresh }) };
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

  // A page that could not be had is fetched again without a further event.
  status = 503;
  served = { problem: "p" };
  heard.stream.changed();
  await new Promise((done) => setImmediate(done));
  assert.strictEqual(page(), "p");
  status = 200;
  served = { a: "a4", b: "b4" };
  await settle();
  assert.strictEqual(page(), "a4 b4");
  assert.strictEqual(live.textContent, "This page is live.");
}

run(require("node:fs").readFileSync(0, "utf8")).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
