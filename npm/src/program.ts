/** The program `mrtr-cassette`: find it, and start its `serve`. */

import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import type { Socket } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";

import { CassetteError } from "./errors.js";

const { version } = JSON.parse(
  readFileSync(new URL("../package.json", import.meta.url), "utf8"),
) as { version: string };

/** Lines of stderr that are kept to be shown where the program fails. */
const MOST_LINES = 100;

/** A way to start the program, and the words that an error has for it. */
interface Candidate {
  words: [string, ...string[]];
  name: string;
}

/** A `serve` that was started here. */
export interface Serving {
  url: string;
  /** Resolves, when the process has ended, to the text that tells how. */
  ended: Promise<string>;
  /** End it, and wait for that; resolves to its count of plays, such as `1 recorded`. */
  close(): Promise<string>;
}

/** Return the ways to start the program; the first that there is counts. */
function candidates(): Candidate[] {
  const named = process.env["MRTR_CASSETTE_BIN"];
  if (named) return [{ words: [named], name: `MRTR_CASSETTE_BIN=${named}` }];
  const published = `mrtr-cassette@${version}`;
  return [
    { words: ["mrtr-cassette"], name: "mrtr-cassette on the PATH" },
    { words: ["uvx", published], name: `uvx ${published}` },
  ];
}

/** Start `serve` for the cassettes of a folder, and wait until it listens. */
export async function startServe(folder: string, token: string): Promise<Serving> {
  const tried: string[] = [];
  for (const { words, name } of candidates()) {
    const [program, ...first] = words;
    const options = ["--port", "0", "--log-format", "json", "--exit-on-eof"];
    const child = spawn(
      program,
      [...first, "serve", folder, ...options, "--exit-zero"],
      {
        env: { ...process.env, MRTR_CASSETTE_TOKEN: token },
        windowsHide: true,
      },
    );
    const obstacle = await new Promise<NodeJS.ErrnoException | undefined>((resolve) => {
      child.once("spawn", () => resolve(undefined));
      child.once("error", resolve);
    });
    if (obstacle === undefined) return await listening(child, name);
    tried.push(
      `  ${name}: ${obstacle.code === "ENOENT" ? "not found" : obstacle.message}`,
    );
  }
  throw new CassetteError(
    [
      "the program mrtr-cassette can't be started; tried:",
      ...tried,
      "install it (`uv tool install mrtr-cassette` or `pip install mrtr-cassette`), install uv,",
      "name it in MRTR_CASSETTE_BIN, or run the tests by `mrtr-cassette serve . -- COMMAND`",
    ].join("\n"),
  );
}

/** Wait for the line with the address of a process that was started. */
async function listening(child: ChildProcess, name: string): Promise<Serving> {
  const stdin = child.stdin as Socket;
  const stdout = child.stdout as Socket;
  const stderr = child.stderr as Socket;
  const logged: string[] = [];
  let counts = "";
  createInterface({ input: stderr }).on("line", (line) => {
    const event = eventIn(line);
    counts = countsOf(event) ?? counts;
    const text = event === undefined ? line : textOf(event);
    if (text !== undefined) logged.push(text);
    if (logged.length > MOST_LINES) logged.shift();
  });
  // It may end before all is written.
  stdin.on("error", () => undefined);

  const ended = describeEnd(child, name, logged);
  const ready = new Promise<string>((resolve) => {
    createInterface({ input: stdout }).once("line", resolve);
  });

  const line = await Promise.race([ready, ended.then(() => undefined)]);
  const url = line === undefined ? undefined : addressIn(line);
  if (url === undefined) {
    child.kill();
    throw new CassetteError(await ended);
  }
  // It is there for as long as something else runs.
  for (const handle of [child, stdin, stdout, stderr]) handle.unref();
  const close = async (): Promise<string> => {
    child.ref();
    stdin.end();
    await ended;
    return counts;
  };
  return { url, ended, close };
}

/** Wait for the end of a process; return a text with what it has logged. */
async function describeEnd(
  child: ChildProcess,
  name: string,
  logged: readonly string[],
): Promise<string> {
  const closed = new Promise((resolve) => child.once("close", resolve));
  const cause = await new Promise<string>((resolve) => {
    child.once("exit", (code, signal) => resolve(String(signal ?? code)));
  });
  // A process that it started may keep its stderr open.
  await Promise.race([closed, delay(500, undefined, { ref: false })]);
  return [`mrtr-cassette serve (${name}) ended with ${cause}`, ...logged].join("\n");
}

/** Return the address that a ready line has. */
function addressIn(line: string): string | undefined {
  const found = /https?:\/\/[^\s"]+/.exec(line);
  return found?.[0];
}

type LoggedEvent = Record<string, unknown>;

/** Return the counts of plays, by outcome, that the last event of a `serve` has. */
function countsOf(event: LoggedEvent | undefined): string | undefined {
  if (event?.["event"] !== "concluded") return undefined;
  const counts = Object.entries(event["plays"] as Record<string, number>);
  const failed = event["failed"] as number;
  if (failed > 0) counts.push(["failed", failed]);
  return counts.map(([outcome, count]) => `${count} ${outcome}`).join(", ");
}

/** Return the text of an event for people, or undefined for one that no person reads. */
function textOf(event: LoggedEvent): string | undefined {
  const text = event["text"] ?? event["error"];
  return typeof text === "string" ? text : undefined;
}

/** Return the event of a line, or undefined for a line of text. */
function eventIn(line: string): LoggedEvent | undefined {
  if (!line.startsWith("{")) return undefined;
  try {
    return JSON.parse(line) as LoggedEvent;
  } catch {
    return undefined;
  }
}
