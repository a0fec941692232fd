// The list of runs and the picture of one metric. Names come from jobs and are only ever set as text.
"use strict";

const MOST_TAGS = 6;
const element = (id) => document.getElementById(id);
const state = { tags: [], tag: "", known: "" };
const KEY = "pai-ui-key"; // in the storage of this page's origin, which other ports do not see

async function ask(path, options = {}) {
  const headers = { "X-PAI-UI": localStorage.getItem(KEY) || "1", ...(options.headers || {}) };
  const answer = await fetch(path, { ...options, headers, credentials: "same-origin" });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(said.Message || `HTTP ${answer.status}`), { status: answer.status });
}

async function logIn() {
  const code = location.hash.slice(1);
  if (!code) return;
  history.replaceState(null, "", location.pathname);
  const body = JSON.stringify({ code });
  const answer = await ask("session", { method: "POST", body, headers: { "Content-Type": "application/json" } });
  localStorage.setItem(KEY, (await answer.json()).key);
}

function note(text) {
  element("note").textContent = text;
  element("note").hidden = !text;
}

function cell(row, text, className = "") {
  const made = row.appendChild(document.createElement("td"));
  made.textContent = text;
  made.className = className;
  return made;
}

function number(value) {
  if (value === null || value === undefined) return "";
  return Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-4) ? value.toExponential(3) : String(+value.toPrecision(5));
}

function age(seconds) {
  if (!seconds) return "";
  const passed = Math.max(0, Date.now() / 1000 - seconds);
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) if (passed >= 2 * length) return `${Math.round(passed / length)} ${unit} ago`;
  return `${Math.round(passed)} s ago`;
}

function showTable(said) {
  const shown = [...new Set([state.tag, ...said.tags])].filter((tag) => said.tags.includes(tag)).slice(0, MOST_TAGS);
  const head = element("runs").tHead;
  const body = element("runs").tBodies[0];
  head.replaceChildren();
  body.replaceChildren();
  const titles = head.insertRow();
  for (const title of ["Run", "Status", "Updated", ...shown]) {
    const made = titles.appendChild(document.createElement("th"));
    made.textContent = title;
    made.scope = "col";
    if (shown.includes(title)) made.className = "number";
  }
  for (const run of said.runs) {
    const row = body.insertRow();
    cell(row, run.name || run.id, "id").title = run.id;
    const status = cell(row, run.status || "", /^[A-Za-z]+$/.test(run.status || "") ? run.status : "");
    if (run.error || run.damaged) {
      status.title = run.error || `${run.damaged} damaged ranges were skipped`;
      status.className += " warn";
    }
    cell(row, age(run.updated_at), "soft");
    for (const tag of shown) {
      const at = said.tags.indexOf(tag);
      const others = (run.nonfinite || {}).last || {};
      const kind = Object.keys(others).find((name) => others[name].includes(at));
      cell(row, kind || number(run.last[at]), kind ? "number warn" : "number");
    }
  }
  element("count").textContent = said.runs.length < said.total ? `${said.runs.length} of ${said.total}` : `${said.total}`;
}

function showTags(tags) {
  if (tags.join("\n") === state.tags.join("\n")) return;
  state.tags = tags;
  if (!tags.includes(state.tag)) state.tag = tags.find((tag) => /loss/i.test(tag)) || tags[0] || "";
  const options = tags.map((tag) => new Option(tag, tag, false, tag === state.tag));
  element("tag").replaceChildren(...options);
}

async function showPlot(said) {
  const at = said.tags.indexOf(state.tag);
  const having = at < 0 ? [] : said.runs.filter((run) => run.last && run.last[at] !== undefined && (run.last[at] !== null || run.nonfinite));
  element("figure").hidden = having.length === 0;
  if (having.length === 0) return;
  const query = new URLSearchParams({ tag: state.tag, smooth: element("smooth").value, log_y: element("logy").checked });
  if (having.length < said.total || element("filter").value) query.set("runs", JSON.stringify(having.map((run) => run.id).slice(0, 200)));
  const answer = await ask(`plot.svg?${query}`, { cache: "no-cache" });
  const old = element("plot").src;
  element("plot").src = URL.createObjectURL(await answer.blob());
  element("plot").alt = `${state.tag} of ${having.length} runs; the table below has the last values`;
  if (old.startsWith("blob:")) URL.revokeObjectURL(old);
}

async function show() {
  const query = new URLSearchParams({ limit: 1000, filter: element("filter").value });
  query.set("fields", "name,status,updated_at,last,damaged,error");
  try {
    const said = await (await ask(`../api/v1/runs?${query}`)).json();
    showTags(said.tags);
    showTable(said);
    note(said.error || (said.total === 0 ? (said.loading ? "The runs are being read." : "There are no runs here yet.") : ""));
    await showPlot(said);
  } catch (error) {
    note(error.message);
    return error.status !== 401;
  }
  return true;
}

let waiting = null;
function showSoon() {
  if (waiting === null) waiting = setTimeout(() => { waiting = null; show(); }, 500);
}

// Not an EventSource: it cannot send the key.
async function follow() {
  const left = new AbortController();
  addEventListener("pagehide", () => left.abort());
  let cursor = "";
  while (!left.signal.aborted) {
    try {
      const headers = cursor ? { "Last-Event-ID": cursor } : {};
      const answer = await ask("../api/v1/events?topics=runs", { headers, cache: "no-store", signal: left.signal });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        const messages = (text + part.value).split("\n\n");
        text = messages.pop();
        for (const message of messages) {
          const field = (name) => (message.split("\n").find((line) => line.startsWith(`${name}: `)) || "").slice(name.length + 2);
          cursor = field("id") || cursor;
          if (["runs", "resync"].includes(field("event"))) showSoon();
        }
      }
    } catch (error) {
      if (error.status === 401) {
        note(error.message);
        return;
      }
    }
    await new Promise((done) => setTimeout(done, 1000));
  }
}

async function begin() {
  try {
    await logIn();
  } catch (error) {
    note(error.message);
    return;
  }
  element("question").addEventListener("submit", (event) => { event.preventDefault(); show(); });
  element("filter").addEventListener("change", showSoon);
  element("tag").addEventListener("change", () => { state.tag = element("tag").value; show(); });
  for (const id of ["smooth", "logy"]) element(id).addEventListener("change", showSoon);
  if (await show()) follow();
}

begin();
