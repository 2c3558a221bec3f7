// Live updates. Every page works without this: it only saves loading the page again.
"use strict";

const main = document.querySelector("main[data-live]");

async function fresh() {
  const answer = await fetch(location.pathname, { credentials: "same-origin", redirect: "error" });
  const text = await answer.text();
  return new DOMParser().parseFromString(text, "text/html").querySelector("main");
}

function say(text) {
  const live = document.getElementById("live");
  if (live) live.textContent = text;
}

async function showList(version) {
  if (version === main.dataset.version) return;
  const found = await fresh();
  if (!found || found.dataset.live !== "list") return location.reload();
  const focused = document.activeElement && document.activeElement.getAttribute("href");
  main.dataset.version = found.dataset.version;
  const title = found.querySelector("h1").textContent;
  const live = document.getElementById("live");
  for (const old of [...main.children]) if (old !== live && old.tagName !== "H1") old.remove();
  main.querySelector("h1").textContent = title;
  for (const one of [...found.children]) {
    if (one.id !== "live" && one.tagName !== "H1") main.append(document.importNode(one, true));
  }
  document.title = `${title} · chatops`;
  for (const link of main.querySelectorAll("a")) if (link.getAttribute("href") === focused) link.focus();
  say(`Updated: ${title.toLowerCase()}.`);
}

// A page that somebody reads is left as it is. Only its answers go, because they are about another call by now.
async function checkCall() {
  const found = await fresh();
  if (found && found.dataset.state === main.dataset.state) return;
  for (const button of main.querySelectorAll(".answers button")) button.disabled = true;
  say("This call was decided or has changed. Load the page again to see it.");
}

function listen() {
  const events = new EventSource("/events");
  events.addEventListener("changed", (event) => {
    (main.dataset.live === "list" ? showList(event.data) : checkCall()).catch(() => {});
  });
  events.addEventListener("error", () => {
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 60000);
  });
  addEventListener("pagehide", () => events.close(), { once: true });
}

// What Back brings out of the browser's memory may be decided by now, or belong to a login that has ended.
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

if (main) listen();
