// A client of Interlock in JavaScript, written from docs/reference/protocol.md alone.
//
//   node client.mjs PLAN
//
// PLAN is a JSON object: `connection` (path of the connection file), `turn` (text), `calls` (a list
// of [capability, arguments]), `restart` (a worker). Prints one JSON object a line for each thing
// that happens, and exits with 1 when something is not as the page says.

import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// The tests keep everything from npm in one place.
const { Dealer, Subscriber } = createRequire(new URL("../../node/", import.meta.url))("zeromq");

const PROTOCOL = 1;
const REQUEST_MS = 10_000;
const CONTROL_MS = 120_000;
const CREDIT = 4;

const print = (step, fields) => console.log(JSON.stringify({ step, ...fields }));
const json = (value) => Buffer.from(JSON.stringify(value));
const parse = (frame) => JSON.parse(frame.toString("utf8"));

class CodedError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** A promise that others settle, with a deadline that can be renewed. */
class Waiting {
  constructor(milliseconds, onTimeout) {
    this.promise = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    this.onTimeout = onTimeout;
    this.renew(milliseconds);
    const stop = () => clearTimeout(this.timer);
    this.promise.then(stop, stop);
  }

  renew(milliseconds) {
    clearTimeout(this.timer);
    this.timer = setTimeout(this.onTimeout, milliseconds);
  }
}

/** The api plane: requests, watched turns, and the news that a generation ended. */
class Api {
  constructor(info) {
    this.key = info.key;
    this.nextId = 1;
    this.requests = new Map();
    this.watches = new Map();
    this.onGone = () => {};
    this.socket = new Dealer({ linger: 0, immediate: true, sendTimeout: REQUEST_MS });
    this.socket.connect(info.api);
    this.reading = this.#read();
  }

  async request(type, fields = {}, body = undefined, milliseconds = REQUEST_MS) {
    const id = this.nextId++;
    const waiting = new Waiting(milliseconds, () =>
      waiting.reject(new CodedError("timeout", `no reply to ${type}`)),
    );
    this.requests.set(id, waiting);
    try {
      await this.#send({ type, id, key: this.key, ...fields }, body);
      return await waiting.promise;
    } finally {
      this.requests.delete(id);
    }
  }

  /** Go through a turn from an offset to its end, granting credit as items are taken. */
  async *watch(turn, offset = 0) {
    const id = this.nextId++;
    const arrived = [];
    let wake = () => {};
    this.watches.set(id, (message, body) => {
      arrived.push([message, body]);
      wake();
    });
    const header = { type: "turn.watch", id, key: this.key, turn, offset, credit: CREDIT };
    await this.#send(header);
    try {
      let expected = offset;
      for (;;) {
        while (arrived.length === 0) await new Promise((resolve) => (wake = resolve));
        const [message, body] = arrived.shift();
        if (message.type === "reply") throw new CodedError(message.code, message.message ?? "");
        if (message.offset !== expected) throw new Error("the turn has a gap");
        const items = body === undefined ? [] : parse(body);
        if (items.length !== message.count) throw new Error("the count of items is wrong");
        expected += items.length;
        yield* items;
        if (message.end) return;
        if (items.length > 0) {
          const grant = { type: "turn.credit", id: 0, key: this.key, watch: id };
          await this.#send({ ...grant, credit: items.length });
        }
      }
    } finally {
      this.watches.delete(id);
    }
  }

  close() {
    this.socket.close();
    return this.reading;
  }

  async #send(header, body) {
    const frames = [Buffer.from("json"), json(header)];
    await this.socket.send(body === undefined ? frames : [...frames, body]);
  }

  async #read() {
    for await (const [encoding, header, body] of this.socket) {
      if (encoding.toString() !== "json") throw new Error("an answer is not in JSON");
      const message = parse(header);
      if (message.type === "gone") {
        this.onGone(message);
      } else if (this.watches.has(message.id)) {
        this.watches.get(message.id)(message, body);
      } else if (message.type === "reply") {
        const waiting = this.requests.get(message.id);
        const code = message.code ?? "ok";
        if (code === "ok") waiting?.resolve(parse(body));
        else waiting?.reject(new CodedError(code, message.message ?? ""));
      }
    }
  }
}

/** The data plane: one connection to one generation of a worker. */
class Edge {
  constructor(target) {
    this.generation = target.generation;
    this.nextId = 1;
    this.calls = new Map();
    this.tickets = new Map();
    this.opening = [];
    this.ended = undefined;
    this.socket = new Dealer({ linger: 0, immediate: true, sendTimeout: REQUEST_MS });
    this.socket.connect(target.endpoint);
    this.reading = this.#read();
  }

  async call(route, args) {
    const ticket = await this.#open(route.target.ticket);
    const id = this.nextId++;
    const started = Date.now();
    const latest = started + route.timeout_max * 1000;
    const waiting = new Waiting(route.timeout * 1000, () => {
      this.#send({ type: "cancel", id }).catch(() => {});
      waiting.resolve({ outcome: "timeout", may_have_run: true });
    });
    this.calls.set(id, { waiting, parts: [], uncredited: 0, timeout: route.timeout, latest });
    const left_ms = Math.round(route.timeout * 1000);
    const header = { type: "call", id, ticket, name: route.local, left_ms, progress: true };
    try {
      await this.#send({ ...header, generation: this.generation }, json(args));
      return await waiting.promise;
    } finally {
      this.calls.delete(id);
    }
  }

  /** The generation ended: what is under way has failed. */
  end(reason) {
    this.ended = { outcome: "worker_died", message: reason, may_have_run: true };
    for (const call of this.calls.values()) call.waiting.resolve(this.ended);
    for (const waiting of this.opening) waiting.reject(new CodedError("worker_died", reason));
    this.socket.close();
    return this.reading;
  }

  async #open(token) {
    if (this.tickets.has(token)) return this.tickets.get(token);
    const waiting = new Waiting(REQUEST_MS, () =>
      waiting.reject(new CodedError("timeout", "the ticket was not answered")),
    );
    this.opening.push(waiting);
    await this.#send({ type: "open", ticket: token });
    const id = await waiting.promise;
    this.tickets.set(token, id);
    return id;
  }

  async #send(header, body) {
    await this.socket.send(body === undefined ? [json(header)] : [json(header), body]);
  }

  async #read() {
    for await (const [header, body] of this.socket) {
      const message = parse(header);
      if (message.type === "opened") {
        this.opening.shift()?.resolve(message.ticket);
      } else if (message.id === 0) {
        this.opening.shift()?.reject(new CodedError(message.code, message.message));
      } else {
        const call = this.calls.get(message.id);
        if (call !== undefined) await this.#answer(call, message, body);
      }
    }
  }

  async #answer(call, message, body) {
    switch (message.type) {
      case "progress":
        call.waiting.renew(Math.min(call.timeout * 1000, call.latest - Date.now()));
        break;
      case "chunk":
        if (message.n !== call.parts.length) throw new Error("a chunk is missing");
        call.parts.push(Buffer.from(body));
        if (++call.uncredited === 4) {
          call.uncredited = 0;
          await this.#send({ type: "credit", id: message.id, n: 4 });
        }
        break;
      case "result": {
        const chunks = call.parts.length;
        const document = parse(Buffer.concat([...call.parts, body]));
        call.waiting.resolve({ outcome: message.outcome ?? "ok", document, chunks });
        break;
      }
      case "failure": {
        const { code, message: text, may_have_run = false } = message;
        call.waiting.resolve({ outcome: code, message: text, may_have_run });
        break;
      }
    }
  }
}

/** Calls by name: keeps routes while their tickets live, and connections while their worker does. */
class Caller {
  constructor(api) {
    this.api = api;
    this.routes = new Map();
    this.edges = new Map();
    this.resolved = 0;
    api.onGone = (gone) => {
      const key = `${gone.worker}#${gone.generation}`;
      print("gone", { worker: gone.worker, generation: gone.generation });
      this.edges.get(key)?.end(gone.reason ?? "");
      this.edges.delete(key);
      for (const [name, { route }] of this.routes) {
        const { worker, generation } = route.target;
        if (`${worker}#${generation}` === key) this.routes.delete(name);
      }
    };
  }

  async call(capability, args) {
    const route = await this.#route(capability, args);
    const key = `${route.target.worker}#${route.target.generation}`;
    if (!this.edges.has(key)) this.edges.set(key, new Edge(route.target));
    const answer = await this.edges.get(key).call(route, args);
    return { capability: route.capability, generation: route.target.generation, ...answer };
  }

  async close() {
    await Promise.all([...this.edges.values()].map((edge) => edge.end("closed")));
  }

  async #route(capability, args) {
    const kept = this.routes.get(capability);
    if (kept !== undefined && Date.now() < kept.until) return kept.route;
    const route = await this.api.request("resolve", { capability }, json(args));
    this.resolved++;
    const until = Date.now() + (route.target.expires_in - 2) * 1000;
    if (!route.single_use) this.routes.set(capability, { route, until });
    return route;
  }
}

/** The events plane, without loss: snapshot first, then each event once and in order. */
class Follower {
  constructor(api, info) {
    this.api = api;
    this.past = new Set();
    this.waiting = [];
    this.wake = () => {};
    this.socket = new Subscriber({ linger: 0 });
    this.socket.connect(info.events);
    this.socket.subscribe("json");
    this.reading = this.#read();
  }

  async *events() {
    yield await this.#snapshot();
    for (;;) {
      while (this.waiting.length > 0) {
        const event = this.waiting[0];
        if (this.past.has(event.epoch)) {
          this.waiting.shift();
        } else if (event.epoch !== this.epoch || event.seq > this.seq + 1) {
          yield await this.#snapshot();
        } else {
          this.waiting.shift();
          if (event.seq === this.seq + 1) {
            this.seq = event.seq;
            yield event;
          }
        }
      }
      if (!(await this.#news(this.quiet++ === 0 ? 250 : 5000))) await this.#replay();
    }
  }

  close() {
    this.socket.close();
    return this.reading;
  }

  async #snapshot() {
    const { epoch, seq, status } = await this.api.request("snapshot");
    if (this.epoch !== undefined && this.epoch !== epoch) this.past.add(this.epoch);
    [this.epoch, this.seq, this.quiet] = [epoch, seq, 0];
    return { topic: "snapshot", epoch, seq, status };
  }

  /** Ask whether the last events were lost; what is new goes before what waits. */
  async #replay() {
    const { events } = await this.api.request("replay", { epoch: this.epoch, seq: this.seq });
    this.waiting.unshift(...events);
  }

  async #news(milliseconds) {
    if (this.waiting.length > 0) return true;
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), milliseconds);
      this.wake = () => {
        clearTimeout(timer);
        resolve(true);
      };
    });
  }

  async #read() {
    for await (const [encoding, event] of this.socket) {
      if (encoding.toString() !== "json") throw new Error("an event is not in JSON");
      this.waiting.push(parse(event));
      this.wake();
    }
  }
}

async function runTurn(api, text) {
  const turn = randomBytes(16).toString("hex");
  const started = await api.request("turn.start", { turn }, json(text));
  print("turn", started);
  for await (const item of api.watch(turn)) print("item", { item });
  const again = await api.request("turn.start", { turn }, json(text));
  print("same_turn", again);
}

/** Restart a worker while following events, until the new generation is ready. */
async function restartAndFollow(api, follower, worker) {
  const events = follower.events();
  const first = (await events.next()).value;
  print("snapshot", { epoch: first.epoch, seq: first.seq });
  const before = first.status.workers.find((row) => row.name === worker).generation;
  const fields = { action: "restart", name: worker };
  const row = api.request("worker", fields, undefined, CONTROL_MS);
  for await (const event of events) {
    print("event", { event });
    const ofIt = event.topic === "worker.ready" && event.name === worker;
    if (ofIt && event.generation > before) break;
  }
  print("restarted", { row: await row });
}

async function main() {
  const plan = JSON.parse(process.argv[2]);
  const info = JSON.parse(readFileSync(plan.connection, "utf8"));
  if (info.protocol !== PROTOCOL) throw new Error(`unknown protocol ${info.protocol}`);
  const api = new Api(info);
  const caller = new Caller(api);
  const follower = new Follower(api, info);
  const call = async ([capability, args]) => {
    try {
      print("result", await caller.call(capability, args));
    } catch (error) {
      if (error.code === undefined) throw error;
      print("result", { capability, outcome: error.code, message: error.message });
    }
  };

  print("status", { status: await api.request("status") });
  await runTurn(api, plan.turn);
  for (const each of plan.calls) await call(each);
  await Promise.all(plan.calls.map(call));
  await restartAndFollow(api, follower, plan.restart);
  for (const each of plan.calls) await call(each);
  const stranger = new Api({ ...info, key: "wrong" });
  await stranger.request("status").catch((error) => print("refused", { code: error.code }));
  print("done", { resolved: caller.resolved });
  await Promise.all([stranger.close(), caller.close(), follower.close(), api.close()]);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
