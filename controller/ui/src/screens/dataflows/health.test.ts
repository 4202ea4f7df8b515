import { expect, test } from "vitest";

import { headline, troublesIn, troublesOf, type Dataflow, type Freshness } from "@/screens/dataflows/health";

const NOW = new Date("2026-11-23T05:00:00Z");

function dataflow(changes: Partial<Dataflow>): Dataflow {
  return {
    name: "clicks",
    version: 1,
    desired: "running",
    state: "ok",
    stages: 1,
    queued_increments: 0,
    queued_records: 0,
    lag_seconds: null,
    last_success_at: null,
    failures: 0,
    problem: null,
    problem_code: null,
    failing: [],
    troubles: [],
    recent: [],
    quarantined: {},
    rejected: {},
    set_aside: {},
    created_at: "2026-11-23T04:00:00Z",
    ...changes,
  };
}

/** Return what `GET /freshness` answers about dataflows of these states. */
function fresh(...states: Freshness["state"][]): Freshness {
  const dataflows = states.map((state, at) => ({ dataflow: `d${at}`, state, left: [] }));
  const worst = (["stuck", "catching_up"] as const).find((one) => states.includes(one));
  return { state: worst ?? "up_to_date", dataflows, service: [] };
}

test("the sentence on top is the service's judgement, as every client shows it", () => {
  expect(headline(fresh("up_to_date"), [])).toBe("Everything is up to date.");
  expect(headline(fresh("up_to_date", "catching_up"), [])).toBe(
    "Not up to date: 1 of 2 dataflows; the service is catching up.",
  );
  expect(headline(fresh("stuck", "catching_up"), [])).toBe(
    "Not up to date: 2 of 2 dataflows; an operator is needed.",
  );
});

test("a trouble outside the stages hides no stage that waits for a retry", () => {
  const sink = "sink out: no room";
  const both = dataflow({
    state: "retrying",
    troubles: [sink],
    problem: `${sink}; count: cannot finish`,
    problem_code: "stages",
  });
  expect(troublesOf([both], NOW).map((one) => one.what)).toHaveLength(2);
  const outside = dataflow({ state: "retrying", troubles: [sink], problem: `${sink}.`, problem_code: "outside" });
  expect(troublesOf([outside], NOW)).toHaveLength(1);
});

test("a service of an earlier release has no troubles outside its stages", () => {
  const { troubles: _, problem_code: _code, ...earlier } = dataflow({ state: "retrying", problem: "count: no room" });
  expect(troublesOf([earlier as Dataflow], NOW)).toHaveLength(1);
});

test("a service that cannot work is the first thing said", () => {
  expect(headline({ ...fresh("up_to_date"), state: "stuck", service: ["the disk is full; make room"] }, [])).toBe(
    "The service cannot work: the disk is full; make room.",
  );
});

test("what fails though nothing is left needs attention all the same", () => {
  const troubles = troublesOf([dataflow({ state: "broken", problem: "its package is gone" })], NOW);
  expect(headline(fresh("up_to_date"), troubles)).toBe(
    "Everything is up to date, but 1 dataflow needs attention.",
  );
});

test("a failing stage is named, with its age, its error and the next try", () => {
  const failing = {
    stage: "count",
    since: "2026-11-23T04:50:00Z",
    run: "r1",
    tries: 3,
    retry_at: "2026-11-23T05:00:30Z",
    error: { message: "boom" },
  };
  const all = [dataflow({ state: "retrying", failing: [failing] }), dataflow({ name: "other" })];
  const troubles = troublesOf(all, NOW);
  expect(troubles[0]?.what).toBe(
    "clicks: the stage count fails, since 10 min ago (3 tries); retried in 30 s",
  );
  expect(troubles[0]).toMatchObject({ why: "boom", remedy: "retry", severity: "warn" });
});

test("what fails outside the stages is shown beside a stage that fails, and leads to its screen", () => {
  const failing = { stage: "count", since: null, run: null, tries: 1, retry_at: null, error: { message: "boom" } };
  const troubles = ["source urls: its folder is gone", "sink daily: the disk is full", "could not be recovered: damaged"];
  const shown = troublesOf([dataflow({ state: "stopped", failing: [failing], troubles })], NOW);
  expect(shown).toMatchObject([
    { stage: "count", severity: "bad" },
    { what: "clicks: the source urls has trouble", why: "its folder is gone", to: "/dataflows/clicks/sources?source=urls" },
    { what: "clicks: the sink daily has trouble", why: "the disk is full", to: "/dataflows/clicks/results" },
    { what: "clicks has trouble", why: "could not be recovered: damaged", to: "/dataflows/clicks" },
  ]);
  const whole = troublesOf([dataflow({ state: "stopped", problem: "could not be recovered: damaged", troubles })], NOW);
  expect(whole.map(({ severity, what }) => `${severity}: ${what}`)).toEqual([
    "bad: clicks is stopped",
    "warn: clicks: the source urls has trouble",
    "warn: clicks: the sink daily has trouble",
  ]);
  const paused = troublesOf([dataflow({ state: "paused", desired: "paused", troubles })], NOW);
  expect(paused.map(({ severity }) => severity)).toEqual(["warn", "warn", "warn", "quiet"]);
});

test("a paused dataflow comes last and does not alarm", () => {
  const all = [
    dataflow({ name: "a", state: "paused", queued_increments: 1 }),
    dataflow({ name: "b", state: "broken", problem: "its package is gone" }),
  ];
  const troubles = troublesOf(all, NOW);
  expect(troubles.map(({ dataflow }) => dataflow)).toEqual(["b", "a"]);
  expect(troubles[0]).toMatchObject({ why: "its package is gone", remedy: "look" });
  expect(headline(fresh("up_to_date"), [troubles[1]!])).toBe("Everything is up to date.");
});

test("files in quarantine need a decision, though all runs continue", () => {
  const all = [dataflow({ quarantined: { urls: 2 } }), dataflow({ name: "other" })];
  const troubles = troublesOf(all, NOW);
  expect(troubles).toHaveLength(1);
  expect(troubles[0]).toMatchObject({
    what: "clicks: 2 files of urls are in quarantine",
    remedy: "decide",
    to: "/dataflows/clicks/sources?source=urls&status=quarantined",
  });
});

test("records that are set aside wait for a person, though all other runs continue", () => {
  expect(troublesOf([dataflow({ set_aside: { count: 2 } })], NOW)).toMatchObject([
    {
      what: "clicks: 2 records of the stage count are set aside",
      remedy: "decide",
      to: "/dataflows/clicks/stages/count",
    },
  ]);
});

test("a stage that an operator has paused is named, with what releases it", () => {
  const one = { name: "keep", runs_with: "keep", paused_itself: false, waiting: "" };
  const held = { name: "again", runs_with: "again", paused_itself: true, waiting: "is paused by the operator" };
  const paused = dataflow({ state: "paused", problem: "again: is paused by the operator" });
  expect(troublesIn(paused, [one, held], NOW)).toMatchObject([
    { what: "The stage again is paused", remedy: "resume", stage: "again", to: "/dataflows/clicks/stages/again" },
  ]);
  expect(troublesIn(paused, [one], NOW)).toEqual([]);
  expect(troublesOf([paused], NOW)).toMatchObject([
    { what: "clicks is paused in part", why: "again: is paused by the operator", severity: "quiet" },
  ]);
});
