import { Button, Group, SegmentedControl, Select, TextInput } from "@mantine/core";
import { useEffect, useState } from "react";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { Icon } from "@/components/Icon";
import { AGES, NO_FILTERS, type Filters } from "@/screens/runs/filters";

const STATUSES = [
  { value: "", label: "All" },
  { value: "INTENDED", label: "Running" },
  { value: "COMMITTED", label: "Committed" },
  { value: "FAILED", label: "Failed only" },
];

/** What the list is filtered by; each change goes to the address. */
export function FilterBar({
  filters,
  onChange,
}: {
  filters: Filters;
  onChange: (changes: Partial<Filters>) => void;
}) {
  const dataflows = useApi(["dataflows"], () => client.GET("/api/v1/dataflows"), { follow: false });
  const detail = useApi(
    ["dataflows", filters.dataflow, "detail"],
    () => client.GET("/api/v1/dataflows/{name}", { params: { path: { name: filters.dataflow } } }),
    { enabled: filters.dataflow !== "", follow: false },
  );
  const names = dataflows.data?.items.map((one) => one.name) ?? [];
  const stages = filters.dataflow === "" ? [] : (detail.data?.stages.map((one) => one.name) ?? []);
  return (
    <Group gap="sm" align="flex-end" role="search" aria-label="Filters of runs">
      <Select
        label="Dataflow"
        placeholder="All"
        data={with_(names, filters.dataflow)}
        value={filters.dataflow || null}
        onChange={(value) => onChange({ dataflow: value ?? "", stage: "" })}
        clearable
        searchable
        w={150}
        size="xs"
      />
      <Select
        label="Stage"
        placeholder={filters.dataflow === "" ? "Choose a dataflow" : "All"}
        data={with_(stages, filters.stage)}
        value={filters.stage || null}
        onChange={(value) => onChange({ stage: value ?? "" })}
        disabled={filters.dataflow === "" && filters.stage === ""}
        clearable
        searchable
        w={150}
        size="xs"
      />
      <SegmentedControl
        data={STATUSES}
        value={filters.status}
        onChange={(status) => onChange({ status })}
        size="xs"
        aria-label="Status"
      />
      <ErrorCode value={filters.error} onChange={(error) => onChange({ error })} />
      <Select
        label="Began"
        data={AGES}
        value={filters.since}
        onChange={(value) => onChange({ since: value ?? "", from: "", to: "" })}
        allowDeselect={false}
        w={150}
        size="xs"
      />
      {filters.since === "custom" && (
        <>
          <TextInput
            label="From"
            type="datetime-local"
            value={filters.from}
            onChange={(event) => onChange({ from: event.currentTarget.value })}
            size="xs"
          />
          <TextInput
            label="To"
            type="datetime-local"
            value={filters.to}
            onChange={(event) => onChange({ to: event.currentTarget.value })}
            size="xs"
          />
        </>
      )}
      {Object.values(filters).some((value) => value !== "") && (
        <Button
          size="xs"
          variant="subtle"
          leftSection={<Icon name="close" size={14} />}
          onClick={() => onChange(NO_FILTERS)}
        >
          Clear
        </Button>
      )}
    </Group>
  );
}

/** Sent when one leaves the field or presses Enter, so that the list does not jump at each letter. */
function ErrorCode({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const send = () => {
    const code = text.trim();
    if (code !== value && /^([a-z][a-z0-9_]{0,99})?$/.test(code)) onChange(code);
  };
  return (
    <TextInput
      label="Error code"
      placeholder="author_code_failed"
      value={text}
      onChange={(event) => setText(event.currentTarget.value)}
      onBlur={send}
      onKeyDown={(event) => {
        if (event.key === "Enter") send();
      }}
      error={/^([a-z][a-z0-9_]{0,99})?$/.test(text.trim()) ? undefined : "Use only a-z, 0-9 and _"}
      w={160}
      size="xs"
    />
  );
}

/** Return names with the chosen one, which may be of a dataflow that is gone. */
function with_(names: readonly string[], chosen: string): string[] {
  return chosen === "" || names.includes(chosen) ? [...names] : [...names, chosen];
}
