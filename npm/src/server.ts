/** The server of all plays: one `mrtr-cassette serve` for a run, asked over HTTP. */

import { randomUUID } from "node:crypto";
import { request } from "node:http";
import { resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";

import { CassetteError } from "./errors.js";
import { type Serving, startServe } from "./program.js";

/** Where a server is, and what it serves; it can be sent to other processes. */
export interface Address {
  url: string;
  /** The folder that it serves. */
  folder: string;
  /** The folder to which names are relative where tests give them. */
  root: string;
  /** Proves that a play is asked for by who may. */
  token?: string;
}

/** A server that runs; `serving` is its process where it was started here. */
export class Server {
  constructor(
    readonly address: Address,
    readonly serving?: Serving,
  ) {}

  /** Send a control request; return what is answered. */
  async ask<Answer>(method: string, path: string, body?: unknown): Promise<Answer> {
    const url = new URL(`/.mrtr/plays${path}`, this.address.url);
    let status: number;
    let text: string;
    try {
      [status, text] = await exchange(method, url, this.address.token, body);
    } catch (error) {
      throw new CassetteError(await this.#whyAway(error as Error), { cause: error });
    }
    let answer;
    try {
      answer = JSON.parse(text) as Answer & { error?: string; hint?: string };
    } catch {
      throw new CassetteError(`${url} answers ${status}, and no JSON:\n${text}`);
    }
    if (status < 400) return answer;
    throw new CassetteError([answer.error, answer.hint].filter(Boolean).join("\n"));
  }

  /** Return a text about a server that could not be asked. */
  async #whyAway(error: Error): Promise<string> {
    const text = `no mrtr-cassette serve answers at ${this.address.url}: ${error.message}`;
    if (this.serving === undefined) return text;
    // Its end may be noticed a moment later than the end of the connection.
    const later = delay(2000, undefined);
    return (await Promise.race([this.serving.ended, later])) ?? text;
  }

  /** End a server that was started here; return its count of plays. */
  async close(): Promise<string> {
    return (await this.serving?.close()) ?? "";
  }
}

/** The servers that run or are being started here, by their folders. */
const started = new Map<string, Promise<Server>>();

/** Return the server for the cassettes of a folder: one that runs already, or the one for this process. */
export async function serverFor(folder: string = process.cwd()): Promise<Server> {
  const root = resolve(folder);
  const running = process.env["MRTR_CASSETTE_SERVE"];
  if (running) {
    const token = process.env["MRTR_CASSETTE_TOKEN"];
    const served = resolve(process.env["MRTR_CASSETTE_FOLDER"] || root);
    return new Server({ url: running, folder: served, root, ...(token && { token }) });
  }
  let server = started.get(root);
  if (server === undefined) {
    server = start(root);
    started.set(root, server);
    void server.catch(() => started.delete(root));
  }
  return await server;
}

async function start(folder: string): Promise<Server> {
  // Else whoever reaches the port could have it start programs.
  const token = process.env["MRTR_CASSETTE_TOKEN"] || randomUUID();
  const serving = await startServe(folder, token);
  void serving.ended.then(() => started.delete(folder));
  return new Server({ url: serving.url, folder, root: folder, token }, serving);
}

/** Exchange one request; not by `fetch`, which tests put something else in the place of. */
function exchange(
  method: string,
  url: URL,
  token: string | undefined,
  body: unknown,
): Promise<[number, string]> {
  const sent = body === undefined ? "" : JSON.stringify(body);
  const headers = {
    "content-type": "application/json",
    // Node doesn't say it by itself with DELETE.
    "content-length": Buffer.byteLength(sent),
    ...(token !== undefined && { authorization: `Bearer ${token}` }),
  };
  return new Promise((resolve, reject) => {
    const asking = request(url, { method, headers, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("error", reject);
      response.on("end", () => {
        resolve([response.statusCode ?? 0, Buffer.concat(chunks).toString()]);
      });
    });
    asking.on("error", reject);
    asking.end(sent);
  });
}
