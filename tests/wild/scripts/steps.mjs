/**
 * Scenarios as a TypeScript client runs them, whatever SDK it is made with.
 *
 * Each line of the transcript is a JSON object: what the client saw or answered, in the order in
 * which it did, with nothing that varies between runs. Answers depend on the question alone.
 * `steps.py` prints the same lines.
 */

import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';

const SCENARIOS = JSON.parse(readFileSync(new URL('scenarios.json', import.meta.url), 'utf8'));
const SHOWN = ['content', 'isError', 'structuredContent', 'messages', 'contents'];
const VALUES = { string: 'Ada', boolean: true, integer: 7, number: 7 };
const ROOT = { uri: 'file:///workspace', name: 'workspace' };

const sorted = (_key, member) =>
  member?.constructor === Object
    ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1)))
    : member;

const laneOf = (text) => (/^[^:]: /.test(text) ? text[0] : '');

const actionOf = (message) =>
  ['decline', 'cancel'].find((action) => message.includes(action)) ?? 'accept';

const valueFor = (schema) =>
  'default' in schema ? schema.default : 'enum' in schema ? schema.enum[0] : VALUES[schema.type];

/** Keep what MCP gives a meaning; a false `isError` is an absent one. */
const shown = (result) =>
  Object.fromEntries(
    SHOWN.filter((key) => result[key] !== undefined && result[key] !== false).map((key) => [
      key,
      result[key],
    ]),
  );

/** Keeps back each answer until every session has been asked. */
class Rendezvous {
  constructor(sessions) {
    this.missing = sessions;
    this.allAsked = new Promise((resolve) => (this.release = resolve));
  }

  async wait() {
    this.missing -= 1;
    if (this.missing <= 0) this.release();
    await this.allAsked;
  }
}

/** One session of a scenario: its part of the transcript, and its answers. */
export class Session {
  constructor(scenario, number, rendezvous) {
    Object.assign(this, { scenario, number, rendezvous, seen: {}, waiting: [] });
  }

  /** Print a line. */
  say(kind, lane = '', members = {}) {
    const line = { scenario: this.scenario, session: this.number, lane, kind, ...members };
    console.log(JSON.stringify(line, sorted));
  }

  /** Answer a form or a URL by its message. */
  elicit = async ({ params }) => {
    const { message, requestedSchema, url = null } = params;
    const properties = requestedSchema?.properties ?? {};
    const fields = Object.fromEntries(
      Object.entries(properties).map(([name, schema]) => [name, schema.type ?? null]),
    );
    const lane = laneOf(message);
    this.say('ask', lane, { method: 'elicitation/create', params: { message, fields, url } });
    await this.rendezvous.wait();
    const answer = { action: actionOf(message) };
    if (answer.action === 'accept' && Object.keys(fields).length > 0) {
      const required = requestedSchema.required ?? Object.keys(fields);
      answer.content = Object.fromEntries(
        required.map((name) => [name, valueFor(properties[name])]),
      );
    }
    this.say('answer', lane, { result: answer });
    this.count('elicitation/create');
    return answer;
  };

  /** Answer in place of a model, or refuse. */
  sample = async ({ params }) => {
    const text = params.messages
      .flatMap(({ content }) => content)
      .map((block) => block.text)
      .join(' ');
    const lane = laneOf(text);
    const asked = { text, maxTokens: params.maxTokens };
    this.say('ask', lane, { method: 'sampling/createMessage', params: asked });
    await this.rendezvous.wait();
    this.count('sampling/createMessage');
    if (text.includes('refuse')) {
      const message = 'User rejected sampling request';
      this.say('answer', lane, { error: [-1, message] });
      throw Object.assign(new Error(message), { code: -1 });
    }
    const content = { type: 'text', text: `Sampled ${text}` };
    this.say('answer', lane, { result: content.text });
    return { role: 'assistant', content, model: 'stub', stopReason: 'endTurn' };
  };

  /** Offer one root. */
  roots = async () => {
    this.say('ask', '', { method: 'roots/list', params: {} });
    await this.rendezvous.wait();
    this.say('answer', '', { result: { roots: [ROOT] } });
    this.count('roots/list');
    return { roots: [ROOT] };
  };

  /** Take down a notification other than progress. */
  notified = async ({ method, params }) => {
    const { _meta, ...known } = params ?? {};
    const isListening = known.logger === 'get' || method.includes('list_changed');
    this.say('notification', isListening ? 'get' : '', { method, params: known });
    this.count(method);
  };

  progress(step) {
    return ({ progress, total = null, message = null }) => {
      if (message?.startsWith('Fulfilling input required by')) return;
      const params = { progress, total, message };
      this.say('progress', 'progress', { call: step.call, params });
      this.count('notifications/progress');
    };
  }

  count(method) {
    this.seen[method] = (this.seen[method] ?? 0) + 1;
    for (const wake of this.waiting.splice(0)) wake();
  }

  async until(method, count) {
    while ((this.seen[method] ?? 0) < count) {
      await new Promise((wake) => this.waiting.push(wake));
    }
  }

  /** Run one step; a server's error is a line like a result. */
  async step(client, step) {
    const lane = step.lane ?? '';
    const result = (of, value) => this.say('result', lane, { of, result: shown(value) });
    try {
      if (step.at_once) await Promise.all(step.at_once.map((each) => this.step(client, each)));
      else if (step.until) await this.until(step.until, step.count ?? 1);
      else if (step.list) {
        const listing = await client[`list${step.list[0].toUpperCase()}${step.list.slice(1)}`]();
        this.say('names', lane, {
          of: step.list,
          names: listing[step.list].map(({ name }) => name),
        });
      } else if (step.call) {
        const options = step.progress ? { onprogress: this.progress(step) } : {};
        const request = { name: step.call, arguments: step.arguments ?? {} };
        result(step.call, await client.callTool(request, ...this.callTail, options));
      } else if (step.prompt) {
        const request = { name: step.prompt, arguments: step.arguments ?? {} };
        result(step.prompt, await client.getPrompt(request));
      } else if (step.read) result(step.read, await client.readResource({ uri: step.read }));
      else if (step.level) await client.setLoggingLevel(step.level);
      else if (step.roots_changed) await client.sendRootsListChanged();
      else throw new TypeError(`no such step: ${JSON.stringify(step)}`);
    } catch (error) {
      if (!Number.isInteger(error.code)) throw error;
      const message = error.message.replace(/^(?:MCP error -?\d+: )+/, '');
      this.say('error', lane, { code: error.code, message });
    }
  }
}

async function runSession(session, open) {
  const { client, callTail, close } = await open(session);
  session.callTail = callTail;
  for (const step of SCENARIOS[session.scenario].steps) await session.step(client, step);
  session.say('end');
  await close();
}

async function run(name, open, patience) {
  const count = SCENARIOS[name].sessions ?? 1;
  const rendezvous = new Rendezvous(count);
  const sessions = Array.from({ length: count }, (_, n) => new Session(name, n + 1, rendezvous));
  let timer;
  const hang = new Promise((resolve) => {
    timer = setTimeout(() => resolve('hang'), patience * 1000);
  });
  const whole = Promise.all(sessions.map((session) => runSession(session, open)));
  try {
    if ((await Promise.race([whole, hang])) === 'hang') {
      sessions[0].say('hang');
      whole.catch(() => {});
      return false;
    }
  } catch (error) {
    sessions[0].say('failure', '', { text: `${error.name}: ${error.message}` });
    return false;
  } finally {
    clearTimeout(timer);
  }
  return true;
}

/** Run scenarios, each against its own URL or command; exit status 1 tells that one hung. */
export async function main(open) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      patience: { type: 'string', default: '20' },
      era: { type: 'string', default: '2025' },
    },
  });
  let wentWell = true;
  for (const pair of positionals) {
    const at = pair.indexOf('=');
    const opened = (session) => open(pair.slice(at + 1), session, values.era);
    wentWell = (await run(pair.slice(0, at), opened, Number(values.patience))) && wentWell;
  }
  process.exit(wentWell ? 0 : 1);
}
