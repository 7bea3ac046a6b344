// Asks for the newest statistics once a second and draws them. Cards are built once and then only changed.
import { drawCollector } from "./collector.js";
import { drawItem } from "./item.js";
import { bytes, duration, make, plot, short } from "./plots.js";
import { drawQueue, drawServer } from "./server.js";

const KEPT = 600;
const LEAST = 60;
const main = document.getElementById("main"), state = document.getElementById("state");
const sections = new Map(), queues = new Map();
let history = noHistory();
let collector = null, server = null;

async function ask(path) {
  const answer = await fetch(path);
  if (answer.status === 401) throw new Error("this page needs its token: open it as /?token=TOKEN");
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error || `error ${answer.status}`);
  return value;
}

// ---- history ----

// A table may have any name, also one that every object of JavaScript has, such as "constructor".
function byName() {
  return Object.create(null);
}

function noHistory() {
  return { number: 0, replays: byName(), queues: byName(), server: byName(), collector: byName() };
}

function extend(into, from) {
  for (const [name, value] of Object.entries(from)) {
    if (Array.isArray(value)) into[name] = [...(into[name] || []), ...value].slice(-KEPT);
    else extend((into[name] ||= byName()), value);
  }
}

function take(news) {
  if (news.number < history.number) history = noHistory();
  for (const part of ["replays", "queues", "server", "collector"]) extend(history[part], news[part]);
  history.number = news.number;
}

function ago(count) {
  return Array.from({ length: count }, (_, place) => `${duration(count - 1 - place)} ago`);
}

// The labels at the two ends of a plot over time.
function span(count) {
  return [`${duration(Math.max(count, LEAST))} ago`, "now"];
}

// ---- tables ----

function number(title, className = "") {
  const value = make("b"), note = make("small");
  return { node: make("div", `number ${className}`, make("span", "", title), value, note), set: (text, small = "") => { value.textContent = text; note.textContent = small; } };
}

function tableCard(replay, name) {
  const size = make("span", "soft"), fill = make("i");
  const inserts = number("inserts/s", "inserts"), samples = number("samples/s", "samples");
  const ratio = number("samples/insert"), unique = number("sampled");
  const rates = plot(["--inserts", "--samples"], { least: LEAST });
  const gate = gateGauge(), waiting = [waitBox("insert"), waitBox("sample")];
  const more = make("div", "facts more"), ages = make("div", "facts"), look = make("div", "look");
  const lookButton = make("button", "", "Look inside"), agesButton = make("button", "", "Ages");
  look.hidden = true;
  ages.hidden = true;
  const query = `replay=${encodeURIComponent(replay)}&table=${encodeURIComponent(name)}`;
  lookButton.addEventListener("click", () => press(lookButton, look, async () => {
    const drawing = drawItem(await ask(`api/item?${query}`));
    lookButton.textContent = "Another item";
    node.classList.add("wide");
    return drawing;
  }));
  agesButton.addEventListener("click", () => press(agesButton, ages, async () => agesText(await ask(`api/ages?${query}`))));
  const node = make("article", "card",
    make("div", "row", make("h3", "", name), size), make("div", "bar", fill),
    make("div", "numbers", inserts.node, samples.node, ratio.node, unique.node),
    rates.node, gate.node, make("div", "waits", ...waiting.map((each) => each.node)), more, ages,
    make("div", "buttons", lookButton, agesButton), look);

  function update(table) {
    size.textContent = `${short(table.size)} of ${short(table.max_size)} items`;
    fill.style.width = `${(100 * table.size) / table.max_size}%`;
    const now = table.rates.now, long = table.rates.ten_minutes;
    inserts.set(short(now && now.inserts), long ? `10 min: ${short(long.inserts)}` : "");
    samples.set(short(now && now.samples), long ? `10 min: ${short(long.samples)}` : "");
    ratio.set(short(table.samples_per_insert_so_far), table.gate.is_bounded ? `target ${short(table.samples_per_insert)}` : "no target");
    const share = table.inserts ? `${((100 * table.unique_samples) / table.inserts).toFixed(0)} %` : "–";
    unique.set(share, "at least once");
    gate.update(table);
    waiting[0].update(table.pending_inserts, table.longest_waiting_insert, table.seconds_waiting_inserts);
    waiting[1].update(table.waiting_samples, table.longest_waiting_sample, table.seconds_waiting_samples);
    const facts = [["inserts", table.inserts], ["samples", table.samples], ["deletes", table.deletes], ["priority updates", table.updates],
      ["updates too late", table.ignored_updates], ["resets", table.resets]];
    if (table.max_times_sampled) facts.push(["samples an item", table.max_times_sampled]);
    more.replaceChildren(...facts.map(([title, value]) => make("span", "", `${title} `, make("b", "", short(value)))));
    const series = (history.replays[replay] || byName())[name];
    if (series) rates.update([series.inserts, series.samples], ago(series.inserts.length), span(series.inserts.length));
  }
  return { node, update };
}

async function press(button, place, answer) {
  button.disabled = true;
  try {
    place.replaceChildren(...(await answer()));
  } catch (error) {
    place.replaceChildren(make("p", "problem", error.message));
  } finally {
    place.hidden = false;
    button.disabled = false;
  }
}

function agesText(items) {
  const facts = [["steps held", short(items.rows)], ["bytes", bytes(items.rows_bytes)], ["mean age, in items", short(items.mean_age)],
    ["oldest", short(items.oldest_age)], ["mean samples an item", short(items.mean_times_sampled)], ["most", short(items.max_times_sampled_so_far)]];
  if (items.effective_sample_size !== null) facts.push(["effective sample size", short(items.effective_sample_size)]);
  return facts.map(([title, value]) => make("span", "", `${title} `, make("b", "", value)));
}

// The place of a table between the bounds of its rate limiter.
function gateGauge() {
  const title = make("span"), verdict = make("span", "soft"), mark = make("i"), fill = make("u");
  const ends = make("div", "ends", make("span", "", "samples wait"), make("span", "", "inserts wait"));
  const node = make("div", "gate", make("div", "row", title, verdict), make("div", "track", fill, mark), ends);
  function update(table) {
    const missing = table.gate.items_missing, bounded = table.gate.is_bounded;
    const filling = !bounded || (missing > 0 && table.min_size > 1);
    mark.hidden = filling;
    fill.hidden = !filling;
    ends.hidden = filling;
    if (!filling) {
      const low = table.min_diff, high = table.max_diff, width = high - low || 1;
      mark.style.left = `${Math.min(100, Math.max(0, (100 * (table.gate.difference - low)) / width))}%`;
      title.textContent = "Rate limiter";
      verdict.textContent = `${short(table.gate.difference)} between ${short(low)} and ${short(high)}`;
    } else {
      fill.style.width = `${Math.min(100, (100 * table.size) / table.min_size)}%`;
      title.textContent = missing ? "Waiting for items" : "Open for samples";
      verdict.textContent = missing ? `${short(missing)} more to go` : `needs ${short(table.min_size)} ${table.min_size === 1 ? "item" : "items"}`;
    }
  }
  return { node, update };
}

function waitBox(what) {
  const title = make("b"), text = make("span", "soft");
  const node = make("div", "wait", title, text);
  function update(count, longest, total) {
    node.classList.toggle("now", count > 0 && longest >= 1);
    title.textContent = count ? `${short(count)} ${what}${count === 1 ? " waits" : "s wait"}` : `No ${what} waits`;
    text.textContent = count ? `${duration(longest)} so far` : total ? `before: ${duration(total)}, all ${what}s together` : "none so far";
  }
  return { node, update };
}

// ---- replays ----

function replaySection(name) {
  const facts = make("div", "facts"), cards = make("div", "cards"), problem = make("p", "problem");
  const tables = new Map();
  const node = make("section", "", make("div", "head", make("h2", "", name), facts), problem, cards);
  function update(replay) {
    problem.textContent = replay.state === "open" ? "" : `No new numbers: ${replay.state}`;
    problem.hidden = replay.state === "open";
    if (replay.store) {
      const { rows, capacity, pages, free_pages, bytes: size, row_bytes } = replay.store;
      const text = [["rows", capacity === null ? short(rows) : `${short(rows)} of ${short(capacity)}`], ["in use", bytes(size)],
        ["pages", `${pages} + ${free_pages} free`], ["a row", bytes(row_bytes)]];
      facts.replaceChildren(...text.map(([title, value]) => make("span", "", `${title} `, make("b", "", value))));
    }
    for (const [table, record] of Object.entries(replay.tables)) {
      if (!tables.has(table)) {
        tables.set(table, tableCard(name, table));
        cards.append(tables.get(table).node);
      }
      tables.get(table).update(record);
    }
  }
  return { node, update };
}

function draw(record) {
  if (record.server) {
    if (!server) {
      server = drawServer();
      main.prepend(server.node);
    }
    server.update(record.server, history.server, ago, span);
  }
  for (const [name, replay] of Object.entries(record.replays)) {
    if (!sections.has(name)) {
      sections.set(name, replaySection(name));
      main.append(sections.get(name).node);
    }
    sections.get(name).update(replay);
  }
  for (const [name, queue] of Object.entries(record.queues)) {
    if (!queues.has(name)) {
      queues.set(name, drawQueue(name));
      main.append(queues.get(name).node);
    }
    queues.get(name).update(queue, history.queues[name], ago, span);
  }
  if (record.collector) {
    if (!collector) {
      collector = drawCollector();
      main.append(collector.node);
    }
    collector.update(record.collector, history.collector, ago, span);
  }
}

// ---- once a second ----

async function tick() {
  if (document.hidden) return;
  try {
    take(await ask(`api/history?after=${history.number}`));
    const record = await ask("api/statistics");
    draw(record);
    const late = record.age_seconds > 5;
    state.className = late ? "lost" : "live";
    state.textContent = late ? `no new sample for ${duration(record.age_seconds)}` : `live, ${duration(record.recorded_seconds)} recorded`;
  } catch (error) {
    state.className = "lost";
    state.textContent = error instanceof TypeError ? "no answer; the program may have ended" : error.message;
  }
}

async function run() {
  for (;;) {
    await tick();
    await new Promise((done) => setTimeout(done, 1000));
  }
}

run();
