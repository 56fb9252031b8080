"use strict";
// Data: see model.py. One page a graph; everything below is drawn from the page that is shown.

const MEASURES = {
  operations: "operations of floating-point ops",
  before: "bytes of results, as written",
  after: "bytes of results, as rewritten",
  nodes: "number of nodes",
};
const LOW = "#1b7f5c", HIGH = "#b8541f";
const MOST_ROWS = 200, MOST_NODES = 100, MOST_PARTS = 40, DEPTH = 3, REST = "[rest]";
let pages = [], page = null, measure = "operations";

const byId = (id) => document.getElementById(id);
const word = (number) => page.words[number];
const share = (part, whole) => (whole ? (100 * part) / whole : 0).toFixed(whole && part / whole < 0.1 ? 1 : 0) + " %";

function short(number) {
  for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["K", 1e3]])
    if (number >= size) return (number / size).toPrecision(3) + " " + unit;
  return String(Math.round(number * 10) / 10);
}

function make(tag, attributes = {}, ...inner) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (name === "onclick") made.addEventListener("click", value);
    else made.setAttribute(name, value);
  made.append(...inner);
  return made;
}

function fill(id, ...inner) {
  byId(id).replaceChildren(...inner);
}

function row(cells, onclick) {
  const made = make("tr", onclick ? { onclick, class: "link" } : {});
  for (const cell of cells)
    made.append(make("td", typeof cell === "number" ? { class: "number" } : {}, typeof cell === "number" ? short(cell) : cell));
  return made;
}

const NUMBERS = ["operations", "bytes of results", "nodes", "down", "up", "bytes written by them"];

function head(...names) {
  return make("tr", {}, ...names.map((name) => make("th", NUMBERS.includes(name) ? { class: "number" } : {}, name)));
}

async function unpack(id) {
  const packed = Uint8Array.from(atob(byId(id).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

function fraction(part, row) {
  return row.values && part ? ((100 * part) / row.values).toPrecision(2) + " %" : "";
}

// ---- what is derived from a page once

function prepare(each) {
  const count = each.nodes.name.length;
  each.slotsOf = Array.from({ length: count }, () => []);
  each.slots.node.forEach((node, slot) => each.slotsOf[node].push(slot));
  each.numberOf = new Map(each.nodes.name.map((name, number) => [name, number]));
  each.text = each.nodes.name.map((name, number) =>
    [name, each.words[each.nodes.op[number]], ...each.slotsOf[number].flatMap((slot) =>
      [each.words[each.slots.becomes[slot]], each.words[each.slots.reason[slot]]])].join(" ").toLowerCase());
  each.nodes.nodes = each.nodes.name.map(() => 1);
  each.order = byCost(each.nodes);
}

function byCost(nodes) {
  // numbers of nodes: those in float32 by what they cost, then those in low precision by what they cost
  const costs = [nodes.low.map((low) => -low), nodes.operations, nodes.after];
  return nodes.name.map((_, number) => number).sort((a, b) => costs.map((cost) => cost[b] - cost[a]).find(Boolean) || a - b);
}

function scopes() {
  // a tree: each scope with its size, how much of it is low, and its parts by name
  const root = { id: "", all: 0, low: 0, parts: new Map() };
  page.nodes.name.forEach((name, number) => {
    const size = page.nodes[measure][number];
    if (!size) return;
    let scope = root;
    const add = (to) => {
      to.all += size;
      to.low += page.nodes.low[number] ? size : 0;
    };
    add(root);
    for (const part of name.split("/")) {
      if (!scope.parts.has(part)) scope.parts.set(part, { id: scope.id ? scope.id + "/" + part : part, all: 0, low: 0, parts: new Map() });
      scope = scope.parts.get(part);
      add(scope);
    }
  });
  return root;
}

function shownOf(tree, root) {
  // the scopes above `root`, and those below it as deep and as many as can be told apart: [label, scope, parent]
  let path = root ? root.split("/") : [];
  if (path.length && !path.reduce((scope, part) => scope && scope.parts.get(part), tree)) path = [];
  const found = [[page.title, tree, null]];
  let scope = tree;
  for (const part of path) {
    found.push([part, scope.parts.get(part), scope]);
    scope = scope.parts.get(part);
  }
  const walk = (parent, depth) => {
    const parts = [...parent.parts].sort((a, b) => b[1].all - a[1].all);
    for (const [label, part] of parts.slice(0, MOST_PARTS)) {
      found.push([label, part, parent]);
      if (depth > 1) walk(part, depth - 1);
    }
    const rest = parts.slice(MOST_PARTS);
    if (!rest.length) return;
    const sum = (key) => rest.reduce((all, [, part]) => all + part[key], 0);
    found.push([rest.length + " more", { id: parent.id + "/" + REST, all: sum("all"), low: sum("low"), parts: new Map() }, parent]);
  };
  walk(scope, DEPTH - 1);
  return found;
}

// ---- the sections

function summarize() {
  const nodes = page.nodes, counts = page.summary;
  const of = (key, low) => nodes[key].reduce((sum, size, number) => sum + (low && !nodes.low[number] ? 0 : size), 0);
  const card = (value, text) => make("div", { class: "card" }, make("b", {}, value), text);
  const cards = [card(page.mode, "precision mode, " + page.low)];
  if (page.sized) {
    cards.push(card(share(of("operations", true), of("operations")), "of floating-point operations in low precision"));
    cards.push(card(share(of("after"), of("before")), "of the bytes of results, against the graph as written"));
  }
  cards.push(card(counts.lowered + " of " + counts.slots, "floating-point types lowered"));
  cards.push(card(counts.casts_to_low + " + " + counts.casts_to_float32, "casts inserted: down + up"));
  cards.push(card(String(page.warnings.length), page.warnings.length === 1 ? "warning" : "warnings"));
  fill("summary", make("div", { class: "cards" }, ...cards));
}

function warn() {
  const shown = page.warnings.map((each) => {
    const inner = [make("div", {}, each.text)];
    if (each.line) inner.push("A line of customize_dtypes that keeps it in float32:", make("pre", {}, each.line));
    if (page.numberOf.has(each.node)) {
      const number = page.numberOf.get(each.node);
      inner.push(make("button", { onclick: () => show(number) }, "show the node"));
    }
    return make("div", { class: "warning" }, ...inner);
  });
  const missing = page.unmatched.map((text) => make("div", { class: "warning" }, text));
  const title = shown.length + missing.length ? [make("h2", {}, "Warnings")] : [];
  fill("warnings", ...title, ...shown, ...missing);
}

function compare() {
  const found = page.differences;
  if (!found) return fill("differences");
  const rows = found.nodes.slice(0, MOST_ROWS).map(([name, op, one, other]) => row([make("code", {}, name), op, one, other],
    page.numberOf.has(name) ? () => show(page.numberOf.get(name)) : null));
  const more = found.nodes.length > MOST_ROWS ? ` (the first ${MOST_ROWS} of them)` : "";
  fill("differences", make("h2", {}, "Differences"),
    make("p", {}, `${found.nodes.length} types differ between ${found.one} and ${found.other}${more}; below is ${found.other}.`),
    make("table", {}, head("node", "op", found.one, found.other), ...rows));
}

function draw(root = "") {
  const tree = scopes();
  const shown = shownOf(tree, root);
  const named = (scope) => scope.id || "graph";
  const column = (value) => shown.map(value);
  byId("measured").textContent = page.sized
    ? "open dimensions count as 1, what runs in a loop counts once" : "TensorFlow does not tell the shapes of this graph";
  Plotly.react("treemap", [{
    type: "treemap", branchvalues: "total", maxdepth: DEPTH, level: root || "graph",
    ids: column(([, scope]) => named(scope)), labels: column(([label]) => label),
    parents: column(([, , parent]) => (parent ? named(parent) : "")), values: column(([, scope]) => scope.all),
    text: column(([, scope]) => share(scope.low, scope.all) + " low"),
    marker: { colors: column(([, scope]) => (scope.all ? scope.low / scope.all : 0)), colorscale: [[0, HIGH], [1, LOW]], cmin: 0, cmax: 1, line: { width: 1, color: "#fff" } },
    hovertemplate: "%{id}<br>%{value:.3s} " + MEASURES[measure] + "<br>%{text}<extra></extra>",
    texttemplate: "%{label}<br>%{text}", tiling: { packing: "squarify" }, pathbar: { visible: true },
  }], { margin: { l: 0, r: 0, t: 24, b: 0 }, height: 518 }, { displayModeBar: false, responsive: true });
  const map = byId("treemap");
  map.removeAllListeners("plotly_treemapclick");
  map.on("plotly_treemapclick", (event) => {
    const id = event.points[0].id === "graph" ? "" : event.points[0].id.replace("/" + REST, "");
    search(id);
    draw(id);
    return false;
  });
}

function types(slots) {
  return slots.map((slot) => {
    const was = word(page.slots.was[slot]), becomes = word(page.slots.becomes[slot]);
    return word(page.slots.name[slot]) + ": " + (was === becomes ? was : was + " → " + becomes);
  }).join(", ");
}

function search(text) {
  byId("search").value = text;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [];
  for (const number of page.order) if (words.every((one) => page.text[number].includes(one))) found.push(number);
  byId("count").textContent = `${found.length} nodes`;
  const halves = [["in float32", 0], ["in low precision", 1]].map(([title, low]) => {
    const half = found.filter((number) => page.nodes.low[number] === low);
    const more = half.length > MOST_NODES ? `, the first ${MOST_NODES} by cost` : "";
    const titled = make("tr", { class: "half" }, make("th", { colspan: 7 }, `${half.length} ${title}${more}`));
    return half.length ? [titled, ...half.slice(0, MOST_NODES).map(nodeRow)] : [];
  });
  fill("found", head("node", "op", "types", "operations", "bytes of results", "why", "because of"), ...halves.flat());
}

function nodeRow(number) {
  const nodes = page.nodes, name = make("code", { class: nodes.low[number] ? "low" : "high" }, nodes.name[number]);
  const cells = [name, word(nodes.op[number]), types(page.slotsOf[number]), nodes.operations[number], nodes.after[number]];
  return row([...cells, ...cause(number)], () => show(number));
}

function cause(number) {
  // of the type that a node is said to run in: the reason, and the node that decided
  const first = page.slotsOf[number][0], by = page.slots.because[first];
  const decided = by < 0 || page.slots.node[by] === number ? "" : make("code", {}, page.nodes.name[page.slots.node[by]]);
  return [word(page.slots.reason[first]), decided];
}

function chain(slot) {
  // from a decision to the one that caused it, and on
  const seen = new Set(), items = [];
  while (slot >= 0 && !seen.has(slot)) {
    seen.add(slot);
    const node = page.slots.node[slot];
    const way = page.slots.way[slot] < 0 ? "" : ", runs as " + word(page.slots.way[slot]);
    items.push(make("li", {}, make("code", {}, page.nodes.name[node] + "." + word(page.slots.name[slot])),
      ` (${word(page.nodes.op[node])}) ${word(page.slots.becomes[slot])}: ${word(page.slots.reason[slot])}${way}`));
    slot = page.slots.because[slot];
  }
  return make("ol", {}, ...items);
}

function show(number) {
  const name = page.nodes.name[number];
  const inner = [make("h2", {}, name), make("p", {}, `${word(page.nodes.op[number])}, ${short(page.nodes.operations[number])} operations, `
    + `${short(page.nodes.before[number])}B of results as written, ${short(page.nodes.after[number])}B as rewritten`)];
  for (const slot of page.slotsOf[number]) inner.push(make("b", {}, types([slot])), chain(slot));
  const casts = page.casts.filter(([tensor, , , readers]) =>
    tensor.split(":")[0] === name || readers.some((each) => each.slice(0, each.lastIndexOf(":")) === name));
  for (const [tensor, dtype, , readers] of casts.slice(0, 20))
    inner.push(make("div", {}, "cast of ", make("code", {}, tensor), ` to ${dtype} for ${readers.slice(0, 5).join(", ")}${readers.length > 5 ? ", …" : ""}`));
  for (const each of (page.ranges || []).filter((one) => one.tensor.slice(0, one.tensor.lastIndexOf(":")) === name))
    inner.push(make("p", {}, `measured in ${each.steps} steps: ${each.tensor} up to ${each.largest.toPrecision(4)}`));
  inner.push(make("p", {}, "A line of customize_dtypes that keeps it in float32:"), make("pre", {}, page.nodes.custom[number]));
  fill("node", ...inner);
  byId("node").parentElement.classList.add("divided");
  byId("node").scrollIntoView({ block: "nearest" });
}

function keep() {
  const groups = new Map();
  page.slots.node.forEach((node, slot) => {
    if (word(page.slots.becomes[slot]) !== "float32") return;
    const key = page.slots.reason[slot] + "|" + page.nodes.op[node];
    const group = groups.get(key) || { reason: page.slots.reason[slot], op: page.nodes.op[node], slots: 0, nodes: new Set() };
    group.slots += 1;
    group.nodes.add(node);
    groups.set(key, group);
  });
  const sum = (group, key) => [...group.nodes].reduce((all, node) => all + page.nodes[key][node], 0);
  const listed = [...groups.values()].map((group) => ({ ...group, operations: sum(group, "operations"), bytes: sum(group, "after") }));
  listed.sort((a, b) => b.bytes - a.bytes || b.slots - a.slots);
  fill("kept", head("op", "why", "nodes", "operations", "bytes of results"), ...listed.slice(0, 60).map((group) =>
    row([word(group.op), word(group.reason), group.nodes.size, group.operations, group.bytes],
      () => { search(word(group.op) + " float32 " + word(group.reason)); byId("search").scrollIntoView(); })));
}

function measured() {
  const rows = (page.ranges || []).slice();
  byId("measures").hidden = !rows.length;
  const worst = (each) => [each.nonfinite ? 1 : 0, each.beyond / each.values, each.below / each.values];
  rows.sort((a, b) => worst(b).map((value, k) => value - worst(a)[k]).find(Boolean) || b.largest - a.largest);
  fill("ranges", head("tensor", "op", "largest", "smallest", "beyond float16", "zero in float16", "first not finite"),
    ...rows.slice(0, MOST_ROWS).map((each) => row([make("code", {}, each.tensor), each.op, each.largest.toPrecision(4),
      each.smallest === null ? "" : each.smallest.toPrecision(4), fraction(each.beyond, each), fraction(each.below, each),
      each.first_nonfinite ? "step " + each.first_nonfinite : ""],
    () => show(page.numberOf.get(each.tensor.slice(0, each.tensor.lastIndexOf(":")))))));
}

function castsByScope() {
  const groups = new Map();
  for (const [tensor, dtype, bytes] of page.casts) {
    const scope = tensor.includes("/") ? tensor.split("/").slice(0, 2).join("/") : "(graph)";
    const group = groups.get(scope) || { down: 0, up: 0, bytes: 0 };
    group[dtype === "float32" ? "up" : "down"] += 1;
    group.bytes += bytes;
    groups.set(scope, group);
  }
  const listed = [...groups].sort((a, b) => b[1].bytes - a[1].bytes || b[1].down + b[1].up - a[1].down - a[1].up);
  fill("casts", head("scope", "down", "up", "bytes written by them"), ...listed.slice(0, 60).map(([scope, group]) =>
    row([make("code", {}, scope), group.down, group.up, group.bytes], () => { search(scope === "(graph)" ? "" : scope); })));
}

function open(number) {
  page = pages[number];
  if (!page.slotsOf) prepare(page);
  [...byId("pages").children].forEach((button, k) => button.setAttribute("aria-current", String(k === number)));
  const offered = page.sized ? Object.keys(MEASURES) : ["nodes"];
  if (!offered.includes(measure)) measure = "nodes";
  fill("measure", ...offered.map((key) => make("option", { value: key, ...(key === measure ? { selected: "" } : {}) }, MEASURES[key])));
  fill("node");
  byId("node").parentElement.classList.remove("divided");
  for (const section of [summarize, warn, compare, () => draw(), measured, keep, castsByScope]) section();
  search("");
}

async function start() {
  pages = JSON.parse(await unpack("data"));
  (0, eval)(await unpack("plotting"));
  if (pages.length > 1)
    fill("pages", ...pages.map((each, number) => make("button", { onclick: () => open(number) }, each.title)));
  byId("measure").addEventListener("change", (event) => { measure = event.target.value; draw(); });
  let waiting = 0;
  byId("search").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => search(event.target.value), 120);
  });
  open(0);
  document.body.dataset.ready = "true";
}

start().catch((reason) => {
  byId("failure").hidden = false;
  byId("failure").textContent = "This report needs a browser of 2023 or later with JavaScript: " + reason;
});
