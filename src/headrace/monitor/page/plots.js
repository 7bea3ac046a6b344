// Plots and small builders. Text from the server reaches the page only as textContent or as attributes set by name.
const SVG = "http://www.w3.org/2000/svg";

export function make(tag, className = "", ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children.filter((child) => child !== null));
  return node;
}

function drawn(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// ---- numbers as text ----

export function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toFixed(2)} G`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(2)} M`;
  if (size >= 1e5) return `${(value / 1e3).toFixed(0)} k`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  if (Number.isInteger(value)) return String(value);
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  if (size >= 0.01 || size === 0) return value.toFixed(2);
  return value.toExponential(1);
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${value >= 100 || unit === 0 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  if (seconds < 7200) return `${(seconds / 60).toFixed(0)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

// ---- plots ----

// One plot of lines over a common axis. `update(lines, labels)`: lines of numbers or null, and a label for each place.
// It begins at zero if `zero` is true. `least` is the number of places that it is wide at least.
export function plot(colors, { zero = true, least = 2 } = {}) {
  const svg = drawn("svg", { viewBox: "0 0 600 84", preserveAspectRatio: "none", role: "img" });
  const top = make("span");
  const left = make("span"), right = make("span"), read = make("span");
  const box = make("div", "plot", svg);
  const node = make("div", "", make("div", "ends", read, top), box, make("div", "ends", left, right));
  svg.append(drawn("line", { class: "grid", x1: 0, x2: 600, y1: 83.5, y2: 83.5 }));
  svg.append(drawn("line", { class: "grid", x1: 0, x2: 600, y1: 42, y2: 42 }));
  const traces = colors.map((color) => {
    const path = drawn("path", { class: "trace" });
    path.style.stroke = `var(${color})`;
    svg.append(path);
    return path;
  });
  const cursor = drawn("line", { class: "cursor", y1: 0, y2: 84, visibility: "hidden" });
  svg.append(cursor);
  let shown = [], names = [], width = 1;

  svg.addEventListener("pointermove", (event) => {
    const area = svg.getBoundingClientRect();
    const place = Math.round(((event.clientX - area.left) / area.width) * (width - 1)) - (width - names.length);
    if (place < 0 || place >= names.length) return;
    const x = ((place + width - names.length) / Math.max(width - 1, 1)) * 600;
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.setAttribute("visibility", "visible");
    read.textContent = `${names[place]}: ${shown.map((line) => short(line[place])).join(", ")}`;
  });
  svg.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    read.textContent = "";
  });

  function update(lines, labels, ends) {
    shown = lines;
    names = labels;
    width = Math.max(least, names.length);
    const values = lines.flat().filter((value) => value !== null && Number.isFinite(value));
    let low = Math.min(...values, zero ? 0 : Infinity), high = Math.max(...values, zero ? 0 : -Infinity);
    if (!values.length) { low = 0; high = 1; }
    if (low === high) { high = low + (Math.abs(low) || 1); }
    const offset = width - names.length;
    lines.forEach((line, number) => {
      let path = "", pen = "M";
      line.forEach((value, place) => {
        if (value === null || !Number.isFinite(value)) { pen = "M"; return; }
        const x = (((place + offset) / (width - 1)) * 600).toFixed(1);
        path += `${pen}${x} ${(82 - ((value - low) / (high - low)) * 78).toFixed(1)}`;
        pen = "L";
      });
      traces[number].setAttribute("d", path);
    });
    top.textContent = values.length ? (low === 0 ? short(high) : `${short(low)} … ${short(high)}`) : "";
    [left.textContent, right.textContent] = ends;
  }
  return { node, update };
}

// Bars, one for each value; for histograms and vectors of one step.
export function bars(values, color) {
  const svg = drawn("svg", { viewBox: "0 0 600 84", preserveAspectRatio: "none", role: "img" });
  const known = values.filter((value) => value !== null);
  const low = Math.min(0, ...known), high = Math.max(0, ...known), span = high - low || 1;
  const zero = 82 - ((0 - low) / span) * 78, step = 600 / Math.max(values.length, 1);
  values.forEach((value, place) => {
    if (value === null) return;
    const y = 82 - ((value - low) / span) * 78;
    const bar = drawn("rect", {
      x: place * step + step * 0.12, width: step * 0.76, y: Math.min(y, zero), height: Math.max(Math.abs(zero - y), 0.8),
    });
    bar.style.fill = `var(${color})`;
    svg.append(bar);
  });
  svg.append(drawn("line", { class: "grid", x1: 0, x2: 600, y1: zero, y2: zero }));
  return make("div", "plot", svg);
}
