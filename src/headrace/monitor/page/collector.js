// The collector: frames per second, policy lag, shares of time, and its workers.
import { bars, duration, make, plot, short } from "./plots.js";

const SHARES = [["environments", "env_seconds", "--p0"], ["policy", "policy_seconds", "--p1"], ["storing", "write_seconds", "--p2"], ["waiting for the learner", "wait_seconds", "--p7"]];
const MOST_LAGS = 32;

export function drawCollector() {
  const facts = make("div", "facts");
  const frames = plot(["--p0"], { least: 60 }), returns = plot(["--p2"], { least: 60, zero: false });
  const shares = make("div", "shares"), legend = make("div", "legend");
  const lagText = make("p", "soft"), lagBars = make("div"), lagEnds = make("div", "ends");
  const workers = make("div", "card wide");
  const title = (text) => make("h3", "", text);
  const framesNow = make("span", "soft"), returnNow = make("span", "soft");
  const node = make("section", "", make("div", "head", make("h2", "", "collector"), facts), make("div", "cards",
    make("article", "card", make("div", "row", title("Frames per second"), framesNow), frames.node),
    make("article", "card", make("div", "row", title("Mean return of 100 episodes"), returnNow), returns.node),
    make("article", "card", title("Policy lag"), lagText, lagBars, lagEnds),
    make("article", "card", title("Where the time goes"), make("p", "soft", "seconds of all workers since the start"), shares, legend),
    workers));

  function update(record, history, ago, span) {
    const text = [["frames", short(record.frames)], ["batches", short(record.batches)], ["episodes", short(record.episodes)],
      ["mean length", short(record.episode_length_mean)], ["discarded", short(record.frames_discarded)], ["restarts", record.restarts]];
    if (record.paused) text.push(["state", "paused"]);
    facts.replaceChildren(...text.map(([name, value]) => make("span", "", `${name} `, make("b", "", String(value)))));
    framesNow.textContent = short(record.frames_per_second);
    returnNow.textContent = short(record.episode_return_mean);
    if (history.frames) {
      const labels = ago(history.frames.length);
      frames.update([history.frames], labels, span(labels.length));
      returns.update([history.returns], labels, span(labels.length));
    }
    drawShares(record);
    drawLag(record);
    drawWorkers(record.workers);
  }

  function drawShares(record) {
    const total = SHARES.reduce((sum, [, field]) => sum + record[field], 0) || 1;
    shares.replaceChildren(...SHARES.map(([, field, color]) => {
      const part = make("i");
      part.style.width = `${(100 * record[field]) / total}%`;
      part.style.background = `var(${color})`;
      return part;
    }));
    legend.replaceChildren(...SHARES.map(([name, field, color]) => {
      const mark = make("i");
      mark.style.background = `var(${color})`;
      return make("span", "", mark, `${name} ${((100 * record[field]) / total).toFixed(0)} %, ${duration(record[field])}`);
    }));
  }

  function drawLag(record) {
    const exceeded = record.lag_exceeded ? `; ${short(record.lag_exceeded)} batches beyond the limit` : "";
    lagText.textContent = `last batch: ${short(record.lag_min)} to ${short(record.lag_max)} versions, mean ${short(record.lag_mean)}${exceeded}`;
    const lags = Object.keys(record.lag_histogram).map(Number);
    if (!lags.length) return;
    const counts = Array(Math.min(Math.max(...lags) + 1, MOST_LAGS)).fill(0);
    for (const lag of lags) counts[Math.min(lag, MOST_LAGS - 1)] += record.lag_histogram[lag];
    lagBars.replaceChildren(bars(counts, "--p3"));
    const last = counts.length - 1;
    lagEnds.replaceChildren(make("span", "", "lag 0"), make("span", "", Math.max(...lags) > last ? `${last} and more` : String(last)));
  }

  function drawWorkers(records) {
    workers.hidden = !records.length;
    const head = ["worker", "process", "frames", "rollouts", "restarts", "policy version", "last step", "error"];
    const rows = records.map((each) => [each.worker_idx, each.alive ? each.pid : "dead", short(each.frames), short(each.rollouts), each.restarts,
      each.policy_version, each.last_step_age === null ? "–" : `${duration(each.last_step_age)} ago`, each.last_error || ""]);
    const line = (tag, cells) => make("tr", "", ...cells.map((cell) => make(tag, "", String(cell))));
    workers.replaceChildren(make("div", "scroll", make("table", "", line("th", head), ...rows.map((row) => line("td", row)))));
  }
  return { node, update };
}
