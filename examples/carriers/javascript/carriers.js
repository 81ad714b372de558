// The processor's logic, independent of the host: `node --test` runs it anywhere.

/**
 * Sums flights, one JSON object a line, by carrier.
 *
 * @param {Uint8Array[]} lines
 * @returns {{sums: object[], rejects: {index: number, reason: string}[]}} a sum for each carrier, sorted, and what
 *   could not be read
 */
export function summarize(lines) {
  const sums = new Map();
  const rejects = [];
  lines.forEach((line, index) => {
    const { reason, carrier, delay } = readFlight(line);
    if (reason) {
      rejects.push({ index, reason });
      return;
    }
    if (!sums.has(carrier)) sums.set(carrier, { carrier, flights: 0, with_delay: 0, delay_minutes: 0 });
    const sum = sums.get(carrier);
    sum.flights += 1;
    if (delay !== null) {
      sum.with_delay += 1;
      sum.delay_minutes += delay;
    }
  });
  return { sums: [...sums.keys()].sort().map((carrier) => sums.get(carrier)), rejects };
}

const decoder = new TextDecoder("utf-8", { fatal: true });

function readFlight(line) {
  let flight;
  try {
    flight = JSON.parse(decoder.decode(line));
  } catch (error) {
    // Not JSON, or not UTF-8. Anything else, such as running out of memory, says nothing about the flight.
    if (error instanceof SyntaxError || error instanceof TypeError) return { reason: error.message };
    throw error;
  }
  if (flight === null || typeof flight !== "object" || Array.isArray(flight)) return { reason: "not a JSON object" };
  const { carrier, dep_delay: delay = null } = flight;
  if (typeof carrier !== "string") return { reason: "no carrier" };
  if (delay !== null && !Number.isInteger(delay)) return { reason: "dep_delay is not a whole number" };
  return { carrier, delay };
}
