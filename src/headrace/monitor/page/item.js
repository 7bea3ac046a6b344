// Draws one item of a table: images, plots of vectors over its steps, and numbers.
import { bars, make, plot, short } from "./plots.js";

const COLORS = Array.from({ length: 8 }, (_, number) => `--p${number}`);

export function drawItem(item) {
  const facts = make("div", "facts");
  const say = (name, value) => facts.append(make("span", "", `${name} `, make("b", "", String(value))));
  say("item", item.key);
  say("priority", short(item.priority));
  say("sampled", `${item.times_sampled} ×`);
  say(item.is_cut ? "first rows" : item.rows === 1 ? "row" : "rows", item.rows);
  if (item.padded_rows) say("of them padding", item.padded_rows);
  const origin = item.origin;
  if (origin) {
    if (origin.lane >= 0) say("lane", origin.lane);
    say(origin.episodes.length > 1 ? "episodes" : "episode", origin.episodes.join(", "));
    say("step", origin.first_step === origin.last_step ? origin.first_step : `${origin.first_step} to ${origin.last_step}`);
  }
  const first = origin ? origin.first_step : 0;
  const images = item.columns.filter((column) => column.kind === "images");
  const others = item.columns.filter((column) => column.kind !== "images");
  const columns = make("div", "columns", ...[...images, ...others].map((column) => drawColumn(column, first)));
  if (item.columns_left_out) columns.append(make("p", "soft", `and ${item.columns_left_out} more columns`));
  return [facts, columns];
}

function drawColumn(column, first) {
  const type = `${column.dtype}${column.shape.length ? `[${column.shape.join(", ")}]` : ""}`;
  const title = make("h4", "", column.name, " ", make("span", "soft", type));
  const body = DRAWINGS[column.kind](column, first);
  const single = column.kind === "images" && column.images.length === 1;
  return make("div", column.kind === "images" && !single ? "column wide" : "column", title, body);
}

const DRAWINGS = { images: drawImages, lines: drawLines, range: drawLines, values: drawValues, text: (column) => make("p", "value", column.text) };

function drawImages(column, first) {
  const many = column.images.length > 1;
  return make("div", "strip", ...column.images.map((source, place) => {
    const image = make("img");
    image.src = source;
    image.alt = `${column.name}, step ${first + column.steps[place]}`;
    return make("figure", "", image, many ? make("figcaption", "", `t ${first + column.steps[place]}`) : null);
  }));
}

function drawLines(column, first) {
  const count = column.lines[0].length;
  const drawing = plot(COLORS.slice(0, column.lines.length), { zero: false });
  drawing.update(column.lines, column.lines[0].map((_, place) => `t ${first + place}`), [`t ${first}`, `t ${first + count - 1}`]);
  if (column.kind === "range") return make("div", "", drawing.node, make("p", "soft", "smallest, mean and largest value"));
  return drawing.node;
}

function drawValues(column) {
  const text = column.values.slice(0, 6).map(short).join(",  ");
  if (column.values.length <= 6) return make("p", "value", text);
  const low = Math.min(...column.values), high = Math.max(...column.values);
  return make("div", "", bars(column.values, "--p0"), make("p", "soft", `${column.values.length} values from ${short(low)} to ${short(high)}`));
}
