// @ts-check
/** Requests to this launch: JSON there, a stream of JSON lines back. */

const KEY = "stepsim-token";

/** Take the token out of the address into the storage of this origin. */
export function keepToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return;
  localStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname);
}

/** @param {string} token */
export const setToken = (token) => localStorage.setItem(KEY, token);

const headers = () => ({ "content-type": "application/json", "x-stepsim-token": localStorage.getItem(KEY) ?? "" });

/** What went wrong, with the fields that are to blame. */
export class Refusal extends Error {
  /** @param {number} status @param {{message: string, problems?: {path: string, message: string}[]}} said */
  constructor(status, said) {
    super(said.message);
    this.status = status;
    this.problems = said.problems ?? [];
  }
}

/** What there is to choose from. @returns {Promise<any>} */
export async function catalogue() {
  let found = null;
  await ask("catalogue", {}, (message) => (found = message));
  return found;
}

/** @param {Response} reply */
async function refused(reply) {
  const said = await reply.json().catch(() => ({ message: `the server answered ${reply.status}` }));
  return new Refusal(reply.status, said);
}

/**
 * Ask a task; `heard` gets each message. Ends with the stream; throws a Refusal, or AbortError by `signal`.
 * @param {string} task
 * @param {object} asked
 * @param {(message: any) => void} heard
 * @param {AbortSignal} [signal]
 */
export async function ask(task, asked, heard, signal) {
  const reply = await fetch(`/api/${task}`, { method: "POST", headers: headers(), body: JSON.stringify(asked), signal });
  if (!reply.ok || !reply.body) throw await refused(reply);
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (!line) continue;
      const message = JSON.parse(line);
      if (message.event === "error") throw new Refusal(422, message);
      heard(message);
    }
    if (done) return;
  }
}

/** One running request of a kind: a new one ends the one before. */
export class Latest {
  /** @type {AbortController | null} */
  running = null;

  /** @param {string} task @param {object} asked @param {(message: any) => void} heard */
  async ask(task, asked, heard) {
    this.stop();
    const mine = new AbortController();
    this.running = mine;
    try {
      await ask(task, asked, heard, mine.signal);
      return true;
    } catch (error) {
      if (mine.signal.aborted) return false;
      throw error;
    } finally {
      if (this.running === mine) this.running = null;
    }
  }

  stop() {
    this.running?.abort();
  }
}
