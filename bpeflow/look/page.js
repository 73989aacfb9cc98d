// The vocabulary: unpacked from the page, searched, and drawn as far as it can be seen.
"use strict";

const ROW = 28; // pixels, as in the style sheet

const element = (id) => document.getElementById(id);

// ---- unpacking, see `packed_vocab` in bpeflow/look/page.py ----

async function unpack(base64) {
  const packed = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const { size, tokens, special, left, right, token, count } = JSON.parse(await new Response(unpacked).text());
  // Bytes are characters from 0 to 255, so that a token is the sum of its parents, and text can be searched for.
  const bytes = new Array(size).fill("");
  for (const [id, hex] of Object.entries(tokens)) bytes[id] = hex.replace(/../g, (byte) => String.fromCharCode(parseInt(byte, 16)));
  for (const [id, text] of Object.entries(special)) bytes[id] = utf8(text);
  const merges = new Map(); // the index of the first merge that makes a token
  const counts = [];
  let id = 0, sum = 0;
  for (let index = 0; index < left.length; index++) {
    id += token[index];
    counts.push((sum += count[index]));
    if (merges.has(id)) continue;
    merges.set(id, index);
    bytes[id] = bytes[left[index]] + bytes[right[index]];
  }
  return { bytes, special, left, right, merges, counts };
}

// ---- text ----

function utf8(text) {
  return Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");
}

function shown(bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes, (byte) => byte.charCodeAt(0)));
    return text.replace(/[\p{C}\p{Z}]/gu, (c) => (c === " " ? "·" : c === "\n" ? "⏎" : c === "\t" ? "⇥" : `\\u{${c.codePointAt(0).toString(16)}}`));
  } catch {
    return Array.from(bytes, (byte) => (byte > " " && byte < "\x7f" ? byte : "\\x" + byte.charCodeAt(0).toString(16).padStart(2, "0"))).join("");
  }
}

// ---- searching ----

function find(query, order) {
  const ids = [];
  const exact = /^id:(\d+)$/.exec(query);
  if (exact) {
    if (exact[1] < vocab.bytes.length) ids.push(+exact[1]);
  } else {
    const wanted = query.split(/(\\x[0-9a-fA-F]{2})/).map((part, i) => (i % 2 ? String.fromCharCode(parseInt(part.slice(2), 16)) : utf8(part))).join("");
    vocab.bytes.forEach((bytes, id) => bytes.includes(wanted) && ids.push(id));
  }
  const length = (id) => vocab.bytes[id].length;
  if (order === "longest") ids.sort((a, b) => length(b) - length(a) || a - b);
  if (order === "shortest") ids.sort((a, b) => length(a) - length(b) || a - b);
  return ids;
}

// ---- drawing ----

let vocab = null;
let found = []; // the ids that match

function cell(row, text, name) {
  const td = row.appendChild(document.createElement("td"));
  td.textContent = text;
  if (name) td.className = name;
  return td;
}

function parent(td, id) {
  const button = td.appendChild(document.createElement("button"));
  button.textContent = shown(vocab.bytes[id]);
  button.title = `id ${id}`;
  button.onclick = () => {
    element("search").value = `id:${id}`;
    search();
  };
}

function draw() {
  const view = element("rows"), body = element("visible");
  const first = Math.max(Math.floor(view.scrollTop / ROW) - 5, 0);
  const last = Math.min(first + Math.ceil(view.clientHeight / ROW) + 10, found.length);
  element("above").style.height = `${first * ROW}px`;
  element("below").style.height = `${(found.length - last) * ROW}px`;
  body.replaceChildren();
  for (const id of found.slice(first, last)) {
    const row = body.appendChild(document.createElement("tr"));
    const merge = vocab.merges.get(id);
    cell(row, id.toLocaleString("en"), "number");
    cell(row, shown(vocab.bytes[id]), id in vocab.special ? "token special" : "token");
    const parents = cell(row, id in vocab.special ? "special token" : "", "parents");
    if (merge !== undefined) {
      parent(parents, vocab.left[merge]);
      parents.append(" + ");
      parent(parents, vocab.right[merge]);
    }
    cell(row, vocab.counts[merge] >= 0 ? vocab.counts[merge].toLocaleString("en") : "", "number");
    cell(row, vocab.bytes[id].length, "number");
  }
}

async function search() {
  vocab ??= await unpack(element("vocabulary").textContent);
  found = find(element("search").value, element("order").value);
  element("rows").hidden = false;
  element("rows").scrollTop = 0;
  element("found").textContent = `${found.length.toLocaleString("en")} of ${vocab.bytes.length.toLocaleString("en")} tokens`;
  draw();
}

// ---- the page ----

function fromAddress() {
  const query = /^#search=(.*)$/.exec(location.hash);
  if (query) element("search").value = decodeURIComponent(query[1]);
  return search();
}

element("search").oninput = element("order").onchange = search;
element("rows").onscroll = window.onresize = () => vocab && draw();
window.onhashchange = fromAddress;
if ("DecompressionStream" in window) fromAddress();
else element("found").textContent = "This browser is too old to show the vocabulary.";
