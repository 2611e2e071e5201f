// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a board of ours is, in Grafana's own types. These name enumerations where JSON has their
// values: Wire takes them off.
import type { Dashboard, DataQuery, FieldConfig, Panel } from '@grafana/schema';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

type Wire<T> = T extends string
  ? `${T}`
  : T extends number | boolean | null | undefined
    ? T
    : T extends Array<infer U>
      ? Array<Wire<U>>
      : T extends object
        ? { [K in keyof T]: Wire<T[K]> }
        : T;

// The schema has none for Prometheus: this is what its data source reads.
interface Target extends DataQuery {
  expr: string;
  legendFormat: string;
  range: true;
}

interface Of<Type extends string, Options, Custom> extends Omit<Panel, 'type' | 'options' | 'targets' | 'fieldConfig'> {
  type: Type;
  options: Options;
  targets: Target[];
  fieldConfig: { defaults: Omit<FieldConfig, 'custom'> & { custom?: Custom }; overrides: [] };
}

type OurPanel =
  | Of<'timeseries', timeseries.Options, timeseries.FieldConfig>
  | Of<'stat', stat.Options, never>;

export type Board = Wire<Omit<Dashboard, 'panels'> & { panels: OurPanel[] }>;
