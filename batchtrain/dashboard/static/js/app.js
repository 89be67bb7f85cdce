// The shell: sign-in, addresses, the stream of the current page, and its rendering.

import { Failed, get, post, Stream } from "./api.js";
import { order } from "./chart.js";
import { h, morph } from "./dom.js";
import { address, command, here, learn, unknown } from "./parts.js";
import * as jobs from "./jobs.js";
import * as overview from "./overview.js";
import * as pools from "./pools.js";
import * as run from "./run.js";
import * as runs from "./runs.js";
import * as task from "./task.js";

const PAGES = [
  ["/", overview.page],
  ["/pools", pools.list],
  ["/pools/:pool", pools.pool],
  ["/pools/:pool/nodes/:node", pools.node],
  ["/jobs", jobs.list],
  ["/jobs/:job", jobs.job],
  ["/jobs/:job/tasks/:task", task.page],
  ["/runs", runs.list],
  ["/runs/compare", runs.compare],
  ["/runs/:run", run.page],
];
const NOWHERE = {
  title: () => "Not found",
  topics: () => ({}),
  render: () => unknown("There is no such page.", location.pathname),
};
const main = document.getElementById("main");
const live = document.getElementById("live");
let account = null;
let current = null;

// --- addresses ------------------------------------------------------------------------------------------------------

function matched(pathname) {
  for (const [pattern, page] of PAGES) {
    const found = new RegExp(`^${pattern.replaceAll(/:(\w+)/g, "(?<$1>[^/]+)")}$`).exec(pathname);
    const names = Object.entries(found?.groups ?? {});
    if (found) return [page, Object.fromEntries(names.map(([name, text]) => [name, decodeURIComponent(text)]))];
  }
  return [NOWHERE, {}];
}

/** What a page gets: names and query of its address, the data it watches, and components that render themselves. */
class Context {
  constructor(params) {
    this.params = params;
    this.account = account;
    this.data = {};
    this.trouble = {};
    this.loaded = {};
    this.components = new Map();
    this.came = new Set();
  }

  get query() {
    return new URLSearchParams(location.search);
  }

  with(values) {
    return here(values);
  }

  /** Change the address without a new entry in the history. */
  set(values) {
    history.replaceState(null, "", this.with(values));
    follow();
  }

  /** A document that is read once. */
  once(path) {
    if (!(path in this.loaded)) {
      this.loaded[path] = undefined;
      get(path).then(
        (value) => {
          this.loaded[path] = value;
          if (this === current?.context) follow();
        },
        (error) => {
          this.trouble[path] = error.message;
          draw();
        },
      );
    }
    return this.loaded[path];
  }

  /** Add a value of the query that may occur several times, or take it out. */
  toggle(name, value) {
    const query = this.query,
      values = query.getAll(name);
    query.delete(name);
    for (const each of values.includes(value) ? values.filter((other) => other !== value) : [...values, value])
      query.append(name, each);
    history.replaceState(null, "", address(query));
    follow();
  }

  /** Go to another page in place of this one, as its subject lives on there. */
  hand(to) {
    if (this !== current?.context || this.handed) return;
    this.handed = true;
    history.replaceState(null, "", to);
    setTimeout(show);
  }

  draw() {
    draw();
  }

  component(name, make) {
    if (!this.components.has(name)) this.components.set(name, make());
    return this.components.get(name);
  }
}

function show() {
  current?.stream?.close();
  for (const component of current?.context.components.values() ?? []) component.close?.();
  const [page, params] = matched(location.pathname);
  current = { page, context: new Context(params), topics: "", stream: null, seen: {}, lost: null };
  for (const anchor of document.querySelectorAll("header nav a"))
    anchor.toggleAttribute("aria-current", location.pathname.startsWith(anchor.getAttribute("href")));
  main.replaceChildren();
  follow();
}

/** Watch what the address needs now. */
function follow() {
  const { page, context } = current;
  const topics = page.topics(context);
  const list = Object.values(topics);
  if (JSON.stringify(list) !== current.topics) {
    current.stream?.close();
    const names = Object.fromEntries(Object.entries(topics).map(([name, topic]) => [topic, name]));
    const mine = current;
    for (const name of Object.keys(context.data)) if (!(name in topics)) delete context.data[name];
    for (const topic of current.watched ?? []) if (!(topic in topics)) delete context.trouble[topic];
    current.watched = Object.keys(topics);
    current.topics = JSON.stringify(list);
    current.seen = {};
    current.stream = new Stream(list, {
      news: ({ topic, at, live, value }) => {
        mine.seen[topic] = { at, live };
        mine.lost = null;
        context.trouble[names[topic]] = "";
        take(context, page, names[topic], value);
      },
      trouble: ({ topic, at, live, value }) => {
        const name = names[topic];
        mine.seen[topic] = { at, live };
        if (page.silent?.includes(name)) context.came.add(name);
        else context.trouble[name] = value;
        draw();
      },
      beat: (states) => {
        mine.seen = states;
        mine.lost = null;
        beat();
      },
      lost: (error) => {
        mine.lost = error;
        if (error.status === 401) signIn();
        else draw();
      },
    });
  }
  draw();
}

function take(context, page, name, value) {
  context.came.add(name);
  if (page.news?.[name]) page.news[name](context, value);
  else context.data[name] = value;
  follow();
}

// --- rendering ------------------------------------------------------------------------------------------------------

let drawing = false;

function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    const { page, context } = current;
    const fresh = h("main", { id: "main", tabindex: "-1" }, page.render(context));
    morph(main, fresh, (name) => context.components.get(name).node);
    main.toggleAttribute(
      "data-ready",
      Object.keys(page.topics(context)).every((name) => context.came.has(name) || context.trouble[name]),
    );
    document.title = `${page.title(context)} · batchtrain`;
    beat();
  });
}

function beat() {
  const seen = Object.values(current?.seen ?? {}).filter(({ at }) => at);
  const isLive = !current?.lost && seen.every((each) => each.live);
  const age = () => Math.round(Date.now() / 1000 - Math.min(...seen.map(({ at }) => at)));
  const old = isLive ? "live" : `as of ${age()} s ago`;
  const text = current?.lost ? "the dashboard does not answer; trying again" : seen.length ? old : "";
  if (live.textContent !== text) live.textContent = text;
  live.className = !isLive ? "bad" : text && "good";
}

setInterval(() => {
  if (current && !document.hidden) draw();
}, 10000);

// --- sign-in --------------------------------------------------------------------------------------------------------

async function start(token = new URLSearchParams(location.hash.slice(1)).get("token")) {
  if (token) history.replaceState(null, "", location.pathname + location.search);
  try {
    if (token)
      await post("/session", { token }).catch((error) => {
        if (!(error instanceof Failed)) throw error;
      });
    account = await get("/account");
    learn(account.tones);
    order(account.main_metrics);
  } catch (error) {
    if (error.status === 401) return signIn();
    live.textContent = error.message;
    return setTimeout(() => start(token), 2000);
  }
  document.getElementById("account").textContent = account.emulated ? "emulator" : account.name || "no account";
  show();
}

function signIn() {
  current?.stream?.close();
  const field = h("input", { type: "password", name: "token", autocomplete: "off", required: true });
  const answer = h("p", { role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    const token = field.value.includes("token=") ? field.value.split("token=")[1] : field.value;
    try {
      await post("/session", { token: token.trim() });
      start();
    } catch (error) {
      answer.textContent = error.message;
    }
  };
  main.replaceChildren(
    h("section", { class: "card narrow" }, [
      h("h1", null, "Sign in"),
      h("p", null, [
        "Open the link that ",
        command("batchtrain dashboard"),
        " printed, or paste it here. Each start of the dashboard has a new one.",
      ]),
      h("form", { onsubmit: submit }, [
        h("label", null, "Link or token ", field),
        h("button", { type: "submit" }, "Sign in"),
      ]),
      answer,
    ]),
  );
}

const isModified = (event) => event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey;

document.addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a[href]:not([download], [href^='#'])");
  if (!anchor || isModified(event) || event.button || event.shiftKey) return;
  const to = new URL(anchor.href);
  if (to.origin !== location.origin || to.pathname.startsWith("/api/")) return;
  event.preventDefault();
  const same = to.pathname === location.pathname;
  history.pushState(null, "", to.pathname + to.search);
  if (same) follow();
  else {
    show();
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
});
addEventListener("popstate", () =>
  matched(location.pathname)[0] === current?.page &&
  JSON.stringify(matched(location.pathname)[1]) === JSON.stringify(current.context.params)
    ? follow()
    : show(),
);
addEventListener("keydown", (event) => {
  if (event.key !== "/" || isModified(event) || event.target.matches?.("input, textarea, select")) return;
  const field = document.querySelector("main input[type=search]");
  if (field) {
    event.preventDefault();
    field.focus();
  }
});

start();
