/** What a compiler has to refuse, and what it has to take. */

import { cassette, type Miss } from "mrtr-cassette";

export async function used(): Promise<Miss[]> {
  await using tape = await cassette({
    file: ["cassettes/a.json", "cassettes/b.json"],
    mode: "append",
    upstream: ["server", "--port", "{port}"],
    reads: ["search"],
  });
  const [program, ...words]: [string, ...string[]] = tape.command;
  console.log(tape.url, program, words, tape.unplayed[0]?.method);
  await tape.end("failed");
  return tape.misses;
}

// @ts-expect-error no option is called so
export const misspelled = () => cassette({ file: "a", histroy: "strict" });
// @ts-expect-error no mode is called so
export const otherMode = () => cassette({ file: "a", mode: "replay" });
// @ts-expect-error which cassette?
export const nameless = () => cassette({ mode: "none" });
