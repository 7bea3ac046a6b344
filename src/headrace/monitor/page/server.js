// A server: its connections and bytes; and its queues of batches.
import { bytes, duration, make, plot, short } from "./plots.js";

function factsOf(text) {
  return text.map(([title, value]) => make("span", "", `${title} `, make("b", "", String(value))));
}

function checkpointFacts(record) {
  if (record.checkpoints === null) return [["checkpoints", "no directory"]];
  const newest = record.checkpoint_age === null ? [] :
    [["newest", `${duration(record.checkpoint_age)} ago`], ["took", duration(record.checkpoint_seconds)]];
  return [["checkpoints", short(record.checkpoints)], ["failed", short(record.failed_checkpoints)], ...newest];
}

export function drawServer() {
  const facts = make("div", "facts"), inNow = make("span", "soft"), outNow = make("span", "soft");
  const received = plot(["--inserts"], { least: 60 }), sent = plot(["--samples"], { least: 60 });
  const node = make("section", "", make("div", "head", make("h2", "", "server"), facts), make("div", "cards",
    make("article", "card", make("div", "row", make("h3", "", "Bytes received per second"), inNow), received.node),
    make("article", "card", make("div", "row", make("h3", "", "Bytes sent per second"), outNow), sent.node)));

  function update(record, history, ago, span) {
    facts.replaceChildren(...factsOf([["clients", short(record.connections)], ["ever", short(record.connections_total)],
      ["rejected handshakes", short(record.rejected_handshakes)], ["protocol errors", short(record.protocol_errors)],
      ["cut messages", short(record.truncated_frames)], ["received", bytes(record.bytes_in)], ["sent", bytes(record.bytes_out)],
      ...checkpointFacts(record), ["up", duration(record.seconds_up)], ["version", record.version]]));
    const now = record.rates.now;
    inNow.textContent = now ? `${bytes(now.bytes_in)}/s` : "";
    outNow.textContent = now ? `${bytes(now.bytes_out)}/s` : "";
    if (history.bytes_in) {
      const labels = ago(history.bytes_in.length);
      received.update([history.bytes_in], labels, span(labels.length));
      sent.update([history.bytes_out], labels, span(labels.length));
    }
  }
  return { node, update };
}

export function drawQueue(name) {
  const facts = make("div", "facts"), problem = make("p", "problem"), rateNow = make("span", "soft"), sizeNow = make("span", "soft");
  const rates = plot(["--inserts", "--samples"], { least: 60 }), size = plot(["--p0"], { least: 60 });
  const node = make("section", "", make("div", "head", make("h2", "", name), facts), problem, make("div", "cards",
    make("article", "card", make("div", "row", make("h3", "", "Samples per second"), rateNow), rates.node),
    make("article", "card", make("div", "row", make("h3", "", "Samples that wait"), sizeNow), size.node)));

  function update(record, history, ago, span) {
    problem.textContent = record.state === "open" ? "" : `No new numbers: ${record.state}`;
    problem.hidden = record.state === "open";
    facts.replaceChildren(...factsOf([["batches", short(record.index)], ["received", short(record.samples_received)],
      ["delivered", short(record.samples_delivered)], ["sends that waited", short(record.blocked_sends)], ["senders", short(record.senders)],
      ["replaced buffers", short(record.buffers_replaced)]]));
    const now = record.rates.now;
    rateNow.textContent = now ? `${short(now.samples_received)} in, ${short(now.samples_delivered)} out` : "";
    sizeNow.textContent = short(record.size);
    if (history) {
      const labels = ago(history.size.length);
      rates.update([history.samples_received, history.samples_delivered], labels, span(labels.length));
      size.update([history.size], labels, span(labels.length));
    }
  }
  return { node, update };
}
