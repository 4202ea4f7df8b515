import type { CSSProperties } from "react";

/** The icons of the page, as strokes in a square of 24. */
const PATHS = {
  alert: "M12 4 2.8 19.500h18.400L12 4Zm0 6v4.500m0 2.500v.1",
  back: "M14.500 5.500 8 12l6.500 6.500",
  bell: "M6.500 16.500V11a5.500 5.500 0 0 1 11 0v5.500l1.500 2H5l1.500-2ZM10 21h4",
  chart: "M4 4v16h16M8 15l3.500-4 3 2.500L20 7.500",
  check: "M5 12.500 10 17.500 19.500 7",
  clock: "M12 3.500a8.500 8.500 0 1 0 0 17 8.500 8.500 0 0 0 0-17Zm0 4v5l3.200 2",
  close: "M6 6l12 12M18 6 6 18",
  copy: "M9 9h11v11H9zM15 9V4H4v11h5",
  down: "M5.500 9.500 12 16l6.500-6.500",
  error: "M12 3.500a8.500 8.500 0 1 0 0 17 8.500 8.500 0 0 0 0-17ZM9 9l6 6m0-6-6 6",
  external: "M14 4h6v6M20 4l-9 9M18 14v6H4V6h6",
  file: "M6 3h8l5 5v13H6zM14 3v5h5",
  filter: "M4 5h16l-6.200 7.500V19l-3.600-2v-4.500L4 5Z",
  folder: "M3.500 19V5.500h6l2 2.500h9V19z",
  forward: "M9.500 5.500 16 12l-6.500 6.500",
  graph: "M5 9.500a2.500 2.500 0 1 0 0 5 2.500 2.500 0 0 0 0-5Zm14-6a2.500 2.500 0 1 0 0 5 2.500 2.500 0 0 0 0-5Zm0 12a2.500 2.500 0 1 0 0 5 2.500 2.500 0 0 0 0-5ZM7.400 11l9.300-4M7.400 13l9.300 4",
  grid: "M4 4h6.500v6.500H4zM13.500 4H20v6.500h-6.500zM4 13.500h6.500V20H4zM13.500 13.500H20V20h-6.500z",
  help: "M12 3.500a8.500 8.500 0 1 0 0 17 8.500 8.500 0 0 0 0-17ZM9.500 9.800c.2-3.300 5.200-3 5 .1-.1 2-2.500 2-2.500 3.900m0 2.600v.1",
  history: "M4 12a8 8 0 1 0 2.500-5.800L4 8.500M4 4v4.500h4.500M12 8v4.500l3 1.800",
  home: "M4 11.500 12 4.500l8 7M6 10v9.500h12V10",
  inbox: "M4 13.500 6.500 5h11l2.500 8.500V19H4zM4 13.500h4.500l1.500 2.500h4l1.500-2.500H20",
  key: "M8 11.500a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM11 12.700 20 4m-4 3.800 3 3",
  list: "M8.500 6H20M8.500 12H20M8.500 18H20M4 6h.1M4 12h.1M4 18h.1",
  menu: "M4 6.500h16M4 12h16M4 17.500h16",
  minus: "M5 12h14",
  moon: "M19.500 14.500A8 8 0 0 1 9.500 4.500a8 8 0 1 0 10 10Z",
  more: "M5.500 12h.1M12 12h.1M18.500 12h.1",
  pause: "M8.500 5.500v13M15.500 5.500v13",
  play: "M7.500 5v14l11.500-7z",
  plus: "M12 5v14M5 12h14",
  refresh: "M19.500 12a7.500 7.500 0 1 1-2.300-5.400L19.500 9M19.500 4v5h-5",
  search: "M10.500 4a6.500 6.500 0 1 0 0 13 6.500 6.500 0 0 0 0-13Zm5 11.500L20.500 20.500",
  settings: "M4 7h9m5 0h2M4 17h3m5 0h8M15.500 4.500a2.500 2.500 0 1 0 0 5 2.500 2.500 0 0 0 0-5Zm-6 10a2.500 2.500 0 1 0 0 5 2.500 2.500 0 0 0 0-5Z",
  shield: "M12 3.500 5 6v6c0 4 3 7 7 8.500 4-1.500 7-4.500 7-8.500V6l-7-2.500Z",
  stack: "M12 4 3.500 8.500 12 13l8.500-4.500L12 4ZM3.500 13 12 17.500l8.500-4.500",
  stop: "M6.500 6.500h11v11h-11z",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM12 2.500v2M12 19.500v2M2.500 12h2M19.500 12h2M5.300 5.300l1.400 1.400M17.300 17.300l1.400 1.400M5.300 18.700l1.400-1.400M17.300 6.700l1.400-1.400",
  table: "M4 5h16v14H4zM4 10h16M4 14.500h16M10 10v9",
  terminal: "M3.500 5h17v14h-17zM7 9.500l3 2.500-3 2.500M12.500 15H17",
  trash: "M4.500 6.500h15M9.500 6V4h5v2M6.500 6.500l1 13.500h9l1-13.500M10.500 10.500v6M13.500 10.500v6",
  undo: "M8.500 5 4 9.500 8.500 14M4 9.500h10a5.500 5.500 0 0 1 0 11h-3",
  up: "M5.500 14.500 12 8l6.500 6.500",
  upload: "M12 16V4.500M7 9l5-5 5 5M4.500 15.500V20h15v-4.500",
  user: "M12 4a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM4.500 20.500c.8-7.300 14.200-7.300 15 0",
} as const;

export type IconName = keyof typeof PATHS;

interface IconProps {
  name: IconName;
  size?: number;
  /** Words for those who do not see it; without them it is decoration. */
  label?: string;
  style?: CSSProperties;
}

/** One icon, in the colour of the text around it. */
export function Icon({ name, size = 18, label, style }: IconProps) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      strokeWidth={1.8}
      strokeLinecap="round"
      strokeLinejoin="round"
      role={label === undefined ? undefined : "img"}
      aria-label={label}
      aria-hidden={label === undefined ? true : undefined}
      style={{ flexShrink: 0, ...style }}
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
