// @ts-check
/** Where the ticks of an axis stand: at round numbers (1, 2, 2.5 or 5 times a power of ten), all in one unit. */

/** @typedef {{at: number, text: string}} Tick */

const ROUND = [1, 2, 2.5, 5, 10];

/** The smallest round number that is at least so large. @param {number} least */
export function roundUp(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return (ROUND.find((one) => one * power >= least * (1 - 1e-9)) ?? 10) * power;
}

/**
 * The multiples of a round step between two numbers, at most so many.
 * @param {number} low
 * @param {number} high
 * @param {number} most
 * @returns {number[]}
 */
export function ticks(low, high, most) {
  if (!(high > low) || most < 2) return [];
  const step = roundUp((high - low) / most);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

/**
 * Ticks of a logarithmic axis: 1, 2 and 5 times powers of ten where at least four of them are in view, powers
 * alone where those are too many, else multiples of a round step.
 * @param {number} low
 * @param {number} high
 * @param {number} most
 * @returns {number[]}
 */
export function logTicks(low, high, most) {
  if (!(high > low) || !(low > 0)) return [];
  const first = Math.floor(Math.log10(low));
  const powers = Array.from({ length: Math.ceil(Math.log10(high)) - first + 1 }, (_, i) => 10 ** (first + i));
  const inView = (/** @type {number[]} */ all) => all.filter((one) => one >= low && one <= high);
  const round = inView(powers.flatMap((one) => [one, 2 * one, 5 * one]));
  if (round.length > most) return inView(powers);
  return round.length > 3 ? round : ticks(low, high, Math.min(most, 8));
}

/**
 * Numbers of an axis as texts, without what floating point adds to them.
 * @param {number[]} values
 * @param {number} unit
 * @param {string} name of the unit
 * @returns {Tick[]}
 */
const labelled = (values, unit, name) => values.map((at) => ({ at, text: `${Number((at / unit).toPrecision(9))}${name}` }));

const UNITS = /** @type {[number, string][]} */ ([[1, " s"], [1e-3, " ms"], [1e-6, " µs"]]);

/** Times in the largest unit in which they and their distances are a thousandth at least. @param {number[]} values seconds */
export function timeTicks(values) {
  const least = Math.min(...values.filter((one) => one > 0).concat(values.slice(1).map((one, i) => one - values[i])));
  const [unit, name] = UNITS.find(([one]) => least >= one * 1e-3) ?? UNITS[2];
  return labelled(values, unit, name);
}

/** @param {number[]} values bytes */
export const memoryTicks = (values) => labelled(values, 1e9, " GB");

/** @param {number[]} values shares of one */
export const shareTicks = (values) => labelled(values, 0.01, " %");
