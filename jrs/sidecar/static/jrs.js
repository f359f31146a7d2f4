// Live without polling: an event says that something is different, then the page is fetched again,
// and only those of its parts that differ are swapped. Without this script, reload the page.
"use strict";
(() => {
  const main = document.querySelector("main[data-events]");
  const live = document.getElementById("live");
  if (!main || !window.EventSource) return;
  const [FIRST, LONGEST] = [2000, 30000]; // Milliseconds before a stream that was refused is tried again.
  let [busy, again, leftOut] = [false, false, false];
  let readAt = now();
  let [events, delay] = [null, FIRST];
  let seen = !main.querySelector('[data-part="problem"]'); // Whether there is a picture to keep.

  function now() {
    return new Date().toISOString().slice(0, 19).replace("T", " ");
  }

  function say(text, isLive = false) {
    live.textContent = isLive ? text : `${text} This page was read at ${readAt}.`;
    live.classList.toggle("old", !isLive);
  }

  // While the backend does not answer, the last picture stays below what says so, and since when.
  function keep(problem) {
    const said = document.createElement("p");
    said.textContent = `What follows was read at ${readAt}.`;
    problem.append(said);
    const old = main.querySelector('[data-part="problem"]');
    if (old) old.replaceWith(problem);
    else main.prepend(problem);
  }

  function swap(fresh) {
    leftOut = false;
    const news = new Map([...fresh.querySelectorAll("[data-part]")].map((one) => [one.dataset.part, one]));
    const olds = [...main.querySelectorAll("[data-part]")];
    const names = olds.map((one) => one.dataset.part).join();
    if (names !== [...news.keys()].join()) {
      main.replaceChildren(...fresh.childNodes);
      return;
    }
    for (const old of olds) {
      const one = news.get(old.dataset.part);
      const wasOpen = old.querySelector("details[open]");
      if (wasOpen) one.querySelector("details")?.setAttribute("open", "");
      if (old.outerHTML === one.outerHTML) continue;
      // A part that is read or scrolled with the keyboard stays until the focus leaves it.
      if (old.contains(document.activeElement)) leftOut = true;
      else old.replaceWith(one);
    }
  }

  async function refresh() {
    if (busy) return void (again = true);
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("main[data-events]");
      const problem = answer.status === 503 && fresh?.querySelector('[data-part="problem"]');
      if (problem && seen) keep(problem);
      else if (fresh) swap(fresh);
      if (answer.ok) [readAt, seen] = [now(), true];
      const isLive = answer.ok && events.readyState === EventSource.OPEN;
      if (isLive && leftOut) say("This page is live, but for the part that has the focus.", true);
      else if (isLive) say("This page is live.", true);
      else if (answer.ok) say("This page is not live now.");
      else if (answer.status === 401) say("You are logged out: run “jrs open” and follow the link it prints.");
      else say("The page cannot be renewed now.");
      again ||= answer.status === 503; // It will be, and perhaps nothing changes any more.
    } catch {
      say("The server does not answer.");
    }
    // A stream may commit many batches in a second.
    setTimeout(() => {
      const more = again;
      [busy, again] = [false, false];
      if (more) refresh();
    }, 1000);
  }

  function listen() {
    events = new EventSource(main.dataset.events);
    events.addEventListener("open", () => (delay = FIRST));
    // The first event counts as well: the page may have changed since it was rendered.
    for (const name of ["changed", "job", "problem"]) events.addEventListener(name, refresh);
    events.addEventListener("error", () => {
      if (events.readyState !== EventSource.CLOSED) return say("The server does not answer.");
      // The answer was no stream, as after a restart, which ends all logins: the browser gives up.
      setTimeout(listen, delay);
      delay = Math.min(2 * delay, LONGEST);
      refresh();
    });
  }

  listen();
  main.addEventListener("focusout", () => leftOut && refresh());
  window.addEventListener("pagehide", () => events.close());
})();
