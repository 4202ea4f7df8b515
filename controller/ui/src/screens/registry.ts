import type { ComponentType } from "react";

import type { Scope } from "@/api/session";
import type { IconName } from "@/components/Icon";

/**
 * Where a screen is in the navigation: two groups of the side bar; the tabs of a dataflow; or
 * nowhere (reached by links).
 */
export type Place = "operate" | "administer" | "dataflow" | "none";

export interface Screen {
  /** Below /ui, as react-router writes it: "/dataflows/:dataflow/state". */
  path: string;
  title: string;
  place: Place;
  icon: IconName;
  /** What one must be allowed to, to see it. */
  scope: Scope;
  /** Loads the screen; its module exports it by default. */
  load: () => Promise<{ default: ComponentType }>;
  /** Keys that go there, one after the other: "g r". */
  keys?: string;
}

/** Every screen of the page: a line for each. In the navigation they stand in this order. */
export const SCREENS: readonly Screen[] = [
  { path: "/", title: "Dataflows", place: "operate", icon: "home", scope: "viewer", keys: "g d", load: () => import("@/screens/dataflows/DataflowsScreen") },
  { path: "/dataflows/:dataflow", title: "Graph", place: "dataflow", icon: "graph", scope: "viewer", load: () => import("@/screens/graph/GraphScreen") },
  { path: "/dataflows/:dataflow/sources", title: "Sources", place: "dataflow", icon: "inbox", scope: "viewer", load: () => import("@/screens/sources/SourcesScreen") },
  { path: "/dataflows/:dataflow/sources/:source/quarantine/:claim", title: "Quarantine", place: "none", icon: "inbox", scope: "viewer", load: () => import("@/screens/sources/QuarantineScreen") },
  { path: "/dataflows/:dataflow/increments", title: "Increments", place: "dataflow", icon: "grid", scope: "viewer", load: () => import("@/screens/increments/IncrementsScreen") },
  { path: "/runs", title: "Runs", place: "operate", icon: "list", scope: "viewer", keys: "g r", load: () => import("@/screens/runs/RunsScreen") },
  { path: "/runs/:run", title: "Run", place: "none", icon: "play", scope: "viewer", load: () => import("@/screens/run/RunScreen") },
  { path: "/dataflows/:dataflow/stages/:stage", title: "Stage", place: "none", icon: "stack", scope: "viewer", load: () => import("@/screens/stage/StageScreen") },
  { path: "/dataflows/:dataflow/increments/:flow/:index", title: "Increment", place: "none", icon: "table", scope: "viewer", load: () => import("@/screens/increment/IncrementScreen") },
  { path: "/dataflows/:dataflow/state", title: "State", place: "dataflow", icon: "stack", scope: "viewer", load: () => import("@/screens/states/StatesScreen") },
  { path: "/dataflows/:dataflow/state/:stage/:state", title: "State", place: "none", icon: "stack", scope: "viewer", load: () => import("@/screens/states/StateScreen") },
  { path: "/dataflows/:dataflow/results", title: "Results", place: "dataflow", icon: "chart", scope: "viewer", load: () => import("@/screens/results/ResultsScreen") },
  { path: "/dataflows/:dataflow/results/:flow", title: "Results", place: "none", icon: "chart", scope: "viewer", load: () => import("@/screens/results/ResultsScreen") },
  { path: "/dataflows/:dataflow/recovery", title: "Recovery", place: "dataflow", icon: "undo", scope: "viewer", load: () => import("@/screens/recovery/RecoveryScreen") },
  { path: "/dataflows/:dataflow/housekeeping", title: "Housekeeping", place: "dataflow", icon: "trash", scope: "viewer", load: () => import("@/screens/housekeeping/HousekeepingScreen") },
  { path: "/dataflows/:dataflow/verify", title: "Verify", place: "dataflow", icon: "shield", scope: "viewer", load: () => import("@/screens/verify/VerifyScreen") },
  { path: "/dataflows/:dataflow/versions", title: "Versions", place: "dataflow", icon: "history", scope: "viewer", load: () => import("@/screens/register/VersionsScreen") },
  { path: "/register", title: "Register", place: "operate", icon: "plus", scope: "operator", keys: "g n", load: () => import("@/screens/register/RegisterScreen") },
  { path: "/alerts", title: "Alerts", place: "operate", icon: "bell", scope: "viewer", keys: "g l", load: () => import("@/screens/alerts/AlertsScreen") },
  { path: "/guides", title: "Guides", place: "operate", icon: "help", scope: "viewer", keys: "g h", load: () => import("@/screens/guides/GuidesScreen") },
  { path: "/api", title: "REST API", place: "operate", icon: "terminal", scope: "viewer", keys: "g i", load: () => import("@/screens/api/ApiScreen") },
  { path: "/guides/:guide", title: "Guide", place: "none", icon: "help", scope: "viewer", load: () => import("@/screens/guides/GuideScreen") },
  { path: "/audit", title: "Audit", place: "administer", icon: "list", scope: "operator", keys: "g a", load: () => import("@/screens/audit/AuditScreen") },
  { path: "/tokens", title: "Tokens", place: "administer", icon: "key", scope: "admin", keys: "g t", load: () => import("@/screens/tokens/TokensScreen") },
];
