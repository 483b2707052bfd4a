/** The play of a cassette: a recording or a replay, from its start to its end. */

import { isAbsolute, join } from "node:path";

import { CassetteError } from "./errors.js";
import { nameWithin } from "./names.js";
import { type Address, type Server, serverFor } from "./server.js";

export type Mode = "none" | "once" | "append" | "all" | "verify";
/** What became of a test; `xfailed`: it failed as it was expected to. */
export type Outcome = "passed" | "failed" | "skipped" | "xfailed";

/** The options of a play, by the names that they have in every language. */
export interface PlayOptions {
  /** The environment variable `MRTR_CASSETTE_MODE` comes before it; else `once`, under CI `none`. */
  mode?: Mode | undefined;
  /**
   * The server that is recorded: a URL, or a command. One with a `{port}` in it serves HTTP,
   * another one is a server on pipes. A replay needs none.
   */
  upstream?: string | readonly string[] | undefined;
  ca_file?: string | undefined;
  echo?: boolean | undefined;
  fail_on?: readonly string[] | undefined;
  fail_on_unplayed?: boolean | undefined;
  faults?: readonly Record<string, unknown>[] | undefined;
  headers?: Readonly<Record<string, string>> | undefined;
  history?: "auto" | "strict" | "order" | undefined;
  ignore?: readonly string[] | undefined;
  ignore_from?: string | undefined;
  insecure?: boolean | undefined;
  masks?: readonly string[] | undefined;
  match?: Readonly<Record<string, string>> | undefined;
  match_headers?: readonly string[] | undefined;
  max_age?: number | undefined;
  no_redact?: readonly string[] | undefined;
  on_miss?: "continue" | "stop" | undefined;
  pace?: "none" | "recorded" | undefined;
  poll_interval?: number | undefined;
  publish_anyway?: boolean | undefined;
  reads?: readonly string[] | undefined;
  redact?: readonly string[] | undefined;
  redact_env?: readonly string[] | undefined;
  redact_keys?: readonly string[] | undefined;
  redact_values?: readonly string[] | undefined;
  repeat?: "auto" | "always" | "never" | undefined;
  request_state?: "sealed" | "verbatim" | undefined;
  seal_answers?: boolean | undefined;
  upstream_path?: string | undefined;
  values?: Readonly<Record<string, string>> | undefined;
}

export interface CassetteOptions extends PlayOptions {
  /** The cassette's name within the folder, or several that are played as one. */
  file: string | readonly string[];
  /** The folder of the cassettes; by default the current one. */
  folder?: string | undefined;
}

/** The options of a test's cassette; without a `file` it is the test's own. */
export interface TestCassetteOptions extends PlayOptions {
  file?: string | readonly string[] | undefined;
}

/** What a test is given by a fixture. */
export interface CassetteFixtures {
  /** Set for some tests, on top of what the configuration says for all. */
  cassetteOptions: TestCassetteOptions;
  /** The test's cassette, played or recorded from where it is first used to the test's end. */
  cassette: Play;
}

/** A request without a recorded answer: `data` of the error that the client got. */
export interface Miss {
  reason: string;
  [member: string]: unknown;
}

/** An interaction that was not wholly played. */
export interface Unplayed {
  /** Its number in the file `cassette`. */
  number: number;
  cassette: string;
  method: string;
  name?: string | null;
}

/** What a play has come to; whole once it has ended. */
export interface Report {
  id: string;
  cassette: string;
  mode: Mode;
  is_recording: boolean;
  /** Replies that came from the cassette. */
  served: number;
  /** Exchanges that were recorded. */
  recorded: number;
  misses: Miss[];
  /** Requests that were not recorded and got what any server says. */
  harmless: number;
  unplayed: Unplayed[];
  /** How often requests matched that were not equal, by the matcher. */
  matched: Record<string, number>;
  /** The texts of values that requests taught. */
  learned: Record<string, string>;
  /** Options that matched nothing. */
  unused: { option: string; value: string }[];
  /** How often each tool was called that the recorded server does not have, in a trial. */
  unknown_tools: Record<string, number>;
  /** Requests that got the miss which stopped the play. */
  stopped: number;
  /** Where the play left the recording that it followed longest; null if it never left it. */
  first_divergence: (Miss & { after: number }) | null;
  /** Nothing missed. */
  valid: boolean;
  /** What became of the cassette. */
  outcome: string | null;
  /** Texts with which the test has to fail. */
  problems: string[];
  /** Texts about probable mistakes. */
  warnings: string[];
  /** What the command printed that was started as the upstream. */
  output: string | null;
}

interface Opened {
  id: string;
  url: string | null;
  command: [string, ...string[]] | null;
  cassette: string;
  mode: Mode;
  is_recording: boolean;
}

/** Play a cassette, or record it where there is none; disposing of it ends the play. */
export async function cassette(options: CassetteOptions): Promise<Play> {
  return await openPlay(await serverFor(options.folder), options);
}

/** Play a cassette by a server. */
export async function openPlay(
  server: Server,
  { file, folder: _, mode, ca_file, ignore_from, ...options }: CassetteOptions,
): Promise<Play> {
  const named = (path: string): string => servedName(server.address, path);
  const opened = await server.ask<Opened>("POST", "", {
    ...options,
    cassette: typeof file === "string" ? named(file) : file.map(named),
    ca_file: ca_file && named(ca_file),
    ignore_from: ignore_from && named(ignore_from),
    mode: process.env["MRTR_CASSETTE_MODE"] || mode,
  });
  return new Play(server, opened);
}

/** Return the name that a server has for a file. */
function servedName({ folder, root }: Address, path: string): string {
  if (isAbsolute(path)) return nameWithin(folder, path);
  return folder === root ? path : nameWithin(folder, join(root, path));
}

/** The plays that were not ended. */
const open = new Set<Play>();

process.on("beforeExit", () => void endForgotten());

/** End the plays that the program has forgotten; nobody else would tell of their misses. */
async function endForgotten(): Promise<void> {
  for (const play of open) {
    const { problems } = await play.end("failed");
    const text = `mrtr-cassette: the play of ${play.cassette} was never ended; begin it by \`await using\`, or call \`end()\``;
    console.error([text, ...problems].join("\n"));
    if (problems.length > 0) process.exitCode = 1;
  }
}

/** A cassette that is played or recorded. */
export class Play implements AsyncDisposable {
  readonly #server: Server;
  readonly #opened: Opened;
  #known: Report | undefined;
  #end: Promise<Report> | undefined;

  constructor(server: Server, opened: Opened) {
    this.#server = server;
    this.#opened = opened;
    open.add(this);
  }

  /** The cassette's name. */
  get cassette(): string {
    return this.#opened.cassette;
  }

  get mode(): Mode {
    return this.#opened.mode;
  }

  get isRecording(): boolean {
    return this.#opened.is_recording;
  }

  /** The URL to which the client connects. */
  get url(): string {
    const { url } = this.#opened;
    if (url !== null) return url;
    throw new CassetteError(
      `${this.cassette} has a server on pipes, and no \`url\`: let the client start \`command\``,
    );
  }

  /** The command that the client starts in the place of a server on pipes. */
  get command(): [string, ...string[]] {
    const { command } = this.#opened;
    if (command !== null) return [...command];
    throw new CassetteError(
      `${this.cassette} has a server over HTTP, and no \`command\`: let the client connect to \`url\``,
    );
  }

  /** The misses that are known; all of them once the play has ended. */
  get misses(): Miss[] {
    return this.#known?.misses ?? [];
  }

  /** The interactions that were not wholly played, as far as known. */
  get unplayed(): Unplayed[] {
    return this.#known?.unplayed ?? [];
  }

  /** Texts about probable mistakes, once the play has ended. */
  get warnings(): string[] {
    return this.#known?.warnings ?? [];
  }

  /** Texts with which the test has to fail, once the play has ended. */
  get problems(): string[] {
    return this.#known?.problems ?? [];
  }

  /** Ask what the play has come to; `misses` and `unplayed` are what they are by now. */
  async report(): Promise<Report> {
    if (this.#end !== undefined) return await this.#end;
    this.#known = await this.#server.ask<Report>("GET", `/${this.#opened.id}`);
    return this.#known;
  }

  /** End the play, and publish what was recorded unless the test failed. */
  async end(outcome: Outcome = "passed"): Promise<Report> {
    this.#end ??= this.#conclude(outcome);
    return await this.#end;
  }

  async #conclude(outcome: Outcome): Promise<Report> {
    open.delete(this);
    const report = await this.#server.ask<Report>("DELETE", `/${this.#opened.id}`, {
      outcome,
    });
    this.#known = report;
    for (const warning of report.warnings) console.warn(`mrtr-cassette: ${warning}`);
    const isFailed = outcome === "failed" || report.problems.length > 0;
    if (isFailed && report.output) {
      console.error(`mrtr-cassette: output of the upstream\n${report.output}`);
    }
    return report;
  }

  /** End the play, unless it has ended, and fail for its problems. */
  async [Symbol.asyncDispose](): Promise<void> {
    const { problems } = await this.end();
    if (problems.length > 0) throw new CassetteError(problems.join("\n\n"));
  }
}
