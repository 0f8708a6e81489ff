
#include "compare/comparison.h"
#include "compare/group_names.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json describe(const PairedDifference& difference) {
  return {{"pairs", difference.pairs},      {"mean", difference.mean},
          {"low", or_null(difference.low)}, {"high", or_null(difference.high)},
          {"p", or_null(difference.p)},     {"equivalent", or_null(difference.equivalent)}};
}

Json describe(const GroupMetric& metric) {
  Json json = {{"n", metric.summary.count},
               {"mean", metric.summary.count > 0 ? Json(metric.summary.mean) : Json()},
               {"sd", or_null(metric.summary.deviation)}};
  json["values"] = Json::object();
  for (const auto& [seed, value] : metric.values) json["values"][std::to_string(seed)] = value;
  if (metric.difference) json["difference"] = describe(*metric.difference);
  return json;
}

Json describe(const McNemarTest& test) {
  return {{"seed", test.seed},       {"only_reference", test.only_reference}, {"only_this", test.only_this},
          {"p_exact", test.p_exact}, {"chi_square", test.chi_square},         {"p_chi_square", test.p_chi_square}};
}

Json describe(const RunRecord& run) {
  Json json = {{"seed", run.seed}, {"source", run.source}, {"key", run.key}};
  if (run.attention_collapse) json["attention_collapse"] = to_json(*run.attention_collapse);
  return json;
}

Json describe(const ComparedGroup& group, const std::string& short_name, const std::string& reference) {
  Json json = {{"name", group.name}, {"short_name", short_name}, {"reference", reference}};
  json["settings"] = group.settings;
  for (const auto& run : group.runs) json["runs"].push_back(describe(run));
  for (const auto& [name, metric] : group.metrics)
    if (metric.summary.count > 0) json["metrics"][name] = describe(metric);
  for (const auto& test : group.mcnemar) json["mcnemar"].push_back(describe(test));
  return json;
}

}  // namespace

Json to_json(const Comparison& comparison) {
  Json json = {{"margin", or_null(comparison.margin)}, {"differing_keys", comparison.differing_keys}};
  for (const auto& metric : comparison.metrics)
    json["metrics"].push_back(
        {{"name", metric.name}, {"title", metric.title}, {"scale", metric.scale}, {"digits", metric.digits}});
  const auto names = short_names(comparison.groups);
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    const auto& group = comparison.groups[i];
    json["groups"].push_back(describe(group, names[i], comparison.groups[group.reference].name));
  }
  json["notes"] = comparison.notes;
  return json;
}

}  // namespace metaformer
