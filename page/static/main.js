// @ts-check
/** The page: the choice left, the answer right, and what has changed goes to whoever shows it. */

import { figures, memory, rests, time } from "./answer.js";
import { Latest, Refusal, ask, catalogue, keepToken, setToken } from "./api.js";
import { MOST, compare } from "./compare.js";
import { by, h, say, save, seconds } from "./dom.js";
import { Faults } from "./faults.js";
import { Form } from "./form.js";
import { Plan, short } from "./plan.js";
import { Schedule } from "./schedule.js";
import { changes, get, recall, remember, set, setLines, state, useShortForms } from "./state.js";

const VIEWS = /** @type {Record<string, string>} */ ({ step: "Step", plan: "Plan", compare: "Compare", faults: "Faults" });

/** @type {any} */
let known;
/** @type {Form} */
let form;
/** @type {Plan} */
let plan;
/** @type {Faults} */
let faults;
/** @type {Schedule} */
let schedule;
/** What the last answer was about. @type {{result: any, layout: any} | null} */
let last = null;
/** The document that the answer on the screen is of, as text. */
let answered = "";
/** The document that copies as --set are relative to. @type {any} */
let base = {};
const latest = new Latest();
const streams = new Latest();

async function begin() {
  keepToken();
  try {
    known = await catalogue();
  } catch (error) {
    askToken(error);
    return;
  }
  useShortForms(known.short_forms);
  for (const [kind, colour] of Object.entries(known.palette)) document.documentElement.style.setProperty(`--p-${kind}`, /** @type {string} */ (colour));
  if (!(await recall())) state.document = structuredClone(known.first);
  base = structuredClone(known.first);
  build();
  await remember(true);
  show();
  addEventListener("popstate", back);
}

/** @param {any} error */
function askToken(error) {
  const input = h("input", { id: "token", type: "text", autocomplete: "off" });
  by("answer").replaceChildren(
    h("form", { onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); setToken(input.value.trim()); location.reload(); } },
      h("h2", {}, "This page needs the token of this launch"),
      h("p", {}, error instanceof Refusal && error.status === 401 ? "Open the address that stepsim serve has printed, or write its token here." : String(error.message)),
      h("label", { for: "token" }, "Token"), input, h("button", { type: "submit", class: "main" }, "Go on")));
}

async function back() {
  if (location.hash.includes("token=")) {
    keepToken();
    location.reload();
    return;
  }
  if (!(await recall())) return;
  show();
}

function build() {
  form = new Form(by("choice"), known, (path, value) => change(set(state.document, path, value)), (document) => { base = structuredClone(document); change(document); });
  by("views").replaceChildren(...Object.entries(VIEWS).map(([view, word]) =>
    h("button", { type: "button", id: `view-${view}`, onclick: () => turn(view) }, word)));
  by("tools").replaceChildren(...tools());
  const part = (/** @type {string} */ id, /** @type {string} */ title) => h("section", { class: "part", "aria-labelledby": `h-${id}` }, h("h2", { id: `h-${id}` }, title), h("div", { id }));
  by("answer").replaceChildren(
    h("div", { id: "in-step" }, h("div", { id: "figures" }),
      h("div", { class: "columns" }, part("memory", "Memory of each stage"), part("time", "Where the time goes")),
      part("schedule", "The schedule"),
      h("div", { class: "columns" }, part("rests", "What it rests on"), h("section", { class: "part", "aria-labelledby": "h-topology" }, h("h2", { id: "h-topology" }, "The network"),
        h("button", { type: "button", id: "draw-network", onclick: drawNetwork }, "Draw it with its loads"), h("div", { id: "network" })))),
    h("div", { id: "in-plan" }), h("div", { id: "in-compare" }), h("div", { id: "in-faults" }));
  schedule = new Schedule(by("schedule"), async (from, to) => {
    let found = null;
    await streams.ask("streams", { document: state.document, window: [from, to] }, (message) => message.event === "streams" && (found = message.streams)).catch((error) => say(error.message));
    return found;
  });
  plan = new Plan(by("in-plan"), () => state.document, (document) => { state.view = "step"; change(document); }, pin, (problems) => form.blame(problems));
  faults = new Faults(by("in-faults"), () => ({ document: state.document, faults: state.faults, layout: last?.layout ?? guess() }),
    (lines) => { state.faults = lines; remember(); faults.show(); }, (document) => { state.document = document; remember(); form.show(document); });
}

/** The cluster's size before any answer. */
const guess = () => ({ gpus: Number(get(state.document, "cluster.gpus") ?? 8), gpus_per_node: Number(get(state.document, "cluster.gpus_per_node") ?? 8), parallelism: {}, schedule: "", microbatches: 0 });

function tools() {
  const copied = (/** @type {string} */ what, /** @type {string} */ text) => navigator.clipboard.writeText(text).then(() => say(`${what} copied`), () => save("stepsim.txt", text, "text/plain"));
  const exported = async (/** @type {string} */ to) => {
    let text = "";
    try {
      await ask("export", { document: state.document, to }, (message) => (text = message.text));
      copied(to, text);
    } catch (error) {
      say("");
      form.blame(/** @type {any} */ (error).problems ?? [], /** @type {Error} */ (error).message);
    }
  };
  const menu = h("select", { id: "copy", "aria-label": "Copy or save", onchange: async () => {
    const what = menu.value;
    menu.value = "";
    if (what === "link") copied("link", location.href);
    else if (what === "set") copied("--set", setLines(base, state.document).join(" ") || "# nothing was changed");
    else if (what === "svg") ask("predict", { document: state.document, schedule: false, timeline: true }, (one) => one.event === "timeline" && save("schedule.svg", one.svg, "image/svg+xml"));
    else if (what === "trace") saveTrace();
    else if (what === "json" && last) save("step.json", JSON.stringify(last.result, null, 2), "application/json");
    else if (what === "csv") save("schedule.csv", csv(), "text/csv");
    else if (what) exported(what);
  } }, h("option", { value: "" }, "Copy or save…"), h("option", { value: "link" }, "Copy the link"), h("option", { value: "yaml" }, "Copy as YAML"), h("option", { value: "set" }, "Copy as --set"),
    known.frameworks.map((/** @type {string} */ one) => h("option", { value: one }, `Copy for ${one}`)),
    h("option", { value: "svg" }, "Save the timeline (SVG)"), h("option", { value: "csv" }, "Save the schedule (CSV)"), h("option", { value: "trace" }, "Save the trace (JSON for Perfetto)"), h("option", { value: "json" }, "Save the answer (JSON)"));
  const theme = h("button", { type: "button", id: "theme", onclick: () => {
    const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    schedule.draw();
  } }, "Light or dark");
  const stop = h("button", { type: "button", id: "stop", hidden: true, onclick: () => { latest.stop(); say("stopped"); } }, "Stop");
  return [stop, h("button", { type: "button", id: "pin", onclick: () => pin({ name: pinName(), document: state.document }) }, "Pin"), menu, theme];
}

/** The step as a trace, packed: of a long step it has many megabytes. */
async function saveTrace() {
  /** @type {string[]} */
  const parts = [];
  let ranks = null;
  try {
    await ask("trace", { document: state.document }, (message) => {
      if (message.event === "progress") say(message.text);
      if (message.event !== "trace") return;
      parts.push(message.text);
      ranks = message.ranks;
    });
    const packed = new Blob(parts).stream().pipeThrough(new CompressionStream("gzip"));
    save("trace.json.gz", await new Response(packed).blob(), "application/gzip");
    say(ranks ? `the trace of ${ranks} alone: stepsim run --trace writes that of all ranks` : "");
  } catch (error) {
    say("");
    form.blame(/** @type {any} */ (error).problems ?? [], /** @type {Error} */ (error).message);
  }
}

/** The layout, and what else differs from where one began. */
const pinName = () => short({ ...changes(base, state.document), ...layoutFields() });

const layoutFields = () => Object.fromEntries(["tp", "cp", "pp", "ep", "vpp", "zero", "sequence_parallel"].map((one) => [`parallelism.${one}`, get(state.document, `parallelism.${one}`)])
  .concat([["schedule", get(state.document, "schedule")], ["training.micro_batch", get(state.document, "training.micro_batch")], ["cluster.gpus", get(state.document, "cluster.gpus")]]));

function csv() {
  const rows = schedule.rows.flatMap((row) => row.boxes.map((/** @type {any} */ one) => [`"${row.name}"`, ...one].join(",")));
  return ["ranks,action,chunk,microbatch,begin_s,end_s", ...rows].join("\n");
}

/** @param {any} one */
function pin(one) {
  state.pins = [...state.pins.filter((other) => JSON.stringify(other.document) !== JSON.stringify(one.document)), one].slice(-MOST);
  say(`pinned ${state.pins.length} of ${MOST}`);
  remember();
  if (state.view === "compare") show();
}

/** @param {any} document */
function change(document) {
  state.document = document;
  remember();
  show();
}

/** @param {string} view */
function turn(view) {
  state.view = view;
  remember();
  show();
}

/** Show the state: the choice at once, the answer when it comes. */
function show() {
  form.show(state.document);
  for (const view of Object.keys(VIEWS)) {
    by(`in-${view}`).hidden = view !== state.view;
    by(`view-${view}`).setAttribute("aria-current", view === state.view ? "page" : "false");
  }
  document.title = `${get(state.document, "model") ?? "stepsim"} · stepsim`;
  predict();
  if (state.view === "compare") compare(by("in-compare"), state.pins, (document) => { state.view = "step"; change(document); }, (i) => { state.pins = state.pins.filter((_, n) => n !== i); remember(); show(); });
  if (state.view === "faults") faults.show();
}

async function predict() {
  const asked = JSON.stringify(state.document);
  if (asked === answered) {
    latest.stop(); // what was asked since is not wanted any more
    say("");
    return;
  }
  const began = performance.now();
  by("in-step").setAttribute("aria-busy", "true");
  let patient = true;
  const slow = setTimeout(() => {
    patient = false;
    say("predicting…");
    by("stop").hidden = false;
  }, 600);
  try {
    const whole = await latest.ask("predict", { document: state.document }, (message) => {
      if (message.event === "progress" && !patient) say(message.text);
      heard(message);
    });
    if (whole) answered = asked;
    if (whole && last) say(`${seconds(last.result.step_time_s)} a step, answered in ${seconds((performance.now() - began) / 1000)}`);
  } catch (error) {
    say("");
    answered = "";
    form.blame(/** @type {any} */ (error).problems ?? [], /** @type {Error} */ (error).message);
    by("in-step").classList.add("stale");
  } finally {
    clearTimeout(slow);
    if (!latest.running) by("stop").hidden = true;
    by("in-step").removeAttribute("aria-busy");
  }
}

/** @param {any} message */
function heard(message) {
  if (message.event === "result") {
    const moved = last && JSON.stringify(last.layout) !== JSON.stringify(message.layout);
    last = { result: message.result, layout: message.layout };
    answered = "";
    form.blame([]);
    by("in-step").classList.remove("stale");
    by("figures").replaceChildren(figures(message.result, message.layout));
    for (const [id, view] of /** @type {[string, (one: any) => any][]} */ ([["memory", memory], ["time", time], ["rests", rests]])) refresh(by(id), view(message.result));
    by("network").replaceChildren();
    if (moved && state.view === "faults") faults.show();
  }
  if (message.event === "schedule") schedule.show(message.schedule);
}

/** Put new content in place, details open as they were. @param {any} place @param {any} content */
function refresh(place, content) {
  const open = [...place.querySelectorAll("details")].map((one) => one.open);
  place.replaceChildren(content);
  place.querySelectorAll("details").forEach((/** @type {any} */ one, /** @type {number} */ i) => (one.open = open[i] ?? false));
}

function drawNetwork() {
  const place = by("network");
  place.replaceChildren(h("p", {}, "drawing…"));
  ask("predict", { document: state.document, schedule: false, topology: true }, (message) => {
    if (message.event !== "topology") return;
    const address = URL.createObjectURL(new Blob([message.svg], { type: "image/svg+xml" }));
    place.replaceChildren(h("img", { src: address, alt: "The network of the cluster, its links coloured by load" }));
  }).catch((error) => place.replaceChildren(h("p", { class: "error" }, error.message)));
}

begin();
