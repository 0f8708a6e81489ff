// A run that was stopped and goes on ends with the bytes of one that was not.

#include <map>
#include <regex>
#include <sstream>

#include "run/checkpoint_surgery.h"
#include "tasks/task_examples.h"

namespace metaformer {

namespace {

// Rows in which every pair of values of two columns but the last stands at least once, as far as a config allows it,
// found by a greedy search. "-": the model has no such option. All options of the state that a checkpoint keeps are
// values here: a new option is a value of a column, with rows that pair it with the others.
constexpr const char* table =
    R"(model          mixer      optimizer  precision  computed     accumulate  dropout    rates   average  cut
transformer    sdp        adamw      fp32       chunks       1           embedding  layers  0        11
transformer    quadratic  adam       fp32       reversible   1           none       layers  0        5
transformer    metric     momentum   fp16       loss_chunks  2           embedding  -       0        1
transformer    pooling    sgd        fp32       slices       1           embedding  layers  0.9      3
transformer    pooling    muon       fp32       chunks       2           none       layers  0.9      5
transformer    identity   adagrad    bf16       plain        2           model      -       0.9      8
memory         sdp        momentum   bf16       plain        2           model      layers  0.9      11
memory         sdp        adagrad    bf16       loss_chunks  1           model      -       0        5
memory         quadratic  sgd        fp32       loss_chunks  1           embedding  -       0        8
memory         quadratic  muon       bf16       reversible   1           embedding  -       0.9      3
memory         metric     adam       bf16       slices       1           none       layers  0        1
memory         pooling    adamw      bf16       chunks       2           model      -       0.9      1
packed         sdp        sgd        fp32       chunks       2           none       -       0.9      8
packed         quadratic  adamw      bf16       slices       1           model      layers  0        1
packed         metric     momentum   fp16       plain        1           none       -       0        11
packed         pooling    muon       fp32       loss_chunks  2           none       layers  0.9      3
packed         pooling    adagrad    fp16       reversible   1           embedding  -       0        5
packed         identity   adam       bf16       chunks       1           model      -       0        3
masked         sdp        adagrad    fp32       slices       2           model      layers  0.9      1
masked         quadratic  momentum   fp32       chunks       1           none       layers  0.9      3
masked         metric     sgd        bf16       reversible   2           model      layers  0.9      5
masked         metric     muon       fp32       loss_chunks  2           none       layers  0        8
masked         pooling    adam       fp16       plain        1           embedding  -       0        11
masked         identity   adamw      fp32       loss_chunks  1           none       -       0        5
masked_packed  sdp        momentum   bf16       reversible   1           model      -       0        3
masked_packed  quadratic  adamw      fp16       loss_chunks  2           model      -       0        1
masked_packed  quadratic  adagrad    fp16       chunks       2           none       layers  0.9      8
masked_packed  metric     muon       fp32       plain        1           embedding  layers  0        11
masked_packed  pooling    adam       fp16       loss_chunks  2           embedding  layers  0.9      5
masked_packed  identity   sgd        fp32       slices       2           none       -       0        1
sorter         sdp        muon       fp16       plain        2           none       -       0.9      1
sorter         quadratic  sgd        fp32       chunks       1           none       layers  0.9      5
sorter         metric     adamw      fp32       reversible   1           model      -       0        8
sorter         pooling    adagrad    fp16       chunks       2           model      -       0        8
sorter         identity   adam       fp16       slices       2           embedding  -       0        3
sorter         identity   momentum   bf16       reversible   1           none       layers  0.9      11
classifier     sdp        adam       fp32       slices       2           model      -       0.9      8
classifier     quadratic  sgd        fp16       plain        1           model      -       0        11
classifier     metric     adagrad    fp32       chunks       2           none       -       0.9      3
classifier     pooling    adamw      fp16       plain        1           none       -       0        1
classifier     pooling    momentum   fp16       reversible   2           embedding  -       0.9      1
classifier     identity   muon       bf16       chunks       1           embedding  -       0        5
regions        -          momentum   fp32       plain        1           none       -       0        11
regions        -          adagrad    fp32       plain        2           none       -       0.9      1
regions_block  -          momentum   fp32       plain        1           none       -       0        8
regions_block  -          adagrad    fp32       plain        2           none       -       0.9      1
pairs          metric     adamw      fp32       plain        2           model      -       0        5
pairs          sdp        muon       bf16       plain        1           none       -       0.9      8
pairs_tokens   quadratic  adam       fp16       plain        2           model      -       0        3
lstm           -          adamw      fp16       loss_chunks  2           model      layers  0        11
lstm           -          momentum   fp32       plain        1           none       -       0.9      1
lstm           -          muon       bf16       slices       2           embedding  layers  0.9      5
lstm_carry     -          adamw      bf16       loss_chunks  1           model      layers  0.9      5
lstm_carry     -          momentum   fp32       plain        1           none       layers  0        8
lstm_carry     -          muon       fp16       slices       2           embedding  -       0.9      11
gru_carry      -          adamw      bf16       plain        2           embedding  layers  0.9      3
gru_carry      -          momentum   fp32       slices       1           none       -       0        5
gru_carry      -          muon       fp16       loss_chunks  2           model      layers  0        1
feed_forward   -          adamw      fp32       slices       2           embedding  -       0        3
feed_forward   -          momentum   fp16       plain        2           none       -       0.9      11
feed_forward   -          muon       bf16       loss_chunks  1           model      -       0        8
)";

struct Row {
  std::string model, mixer, optimizer, precision, computed, accumulate, dropout, rates, average, cut;
};

std::vector<Row> rows() {
  std::istringstream text(table);
  std::string header;
  std::getline(text, header);
  std::vector<Row> all;
  for (Row r; text >> r.model >> r.mixer >> r.optimizer >> r.precision >> r.computed >> r.accumulate >> r.dropout >>
              r.rates >> r.average >> r.cut;)
    all.push_back(r);
  return all;
}

// About 170 texts, so that an epoch ends within the run.
Overrides small_classifier(const Workplace& place, const Overrides& more) {
  const auto options = classifier(place, joined({"task.baselines=false"}, more));
  place.folder().write("table.tsv", marked_table(240));
  return options;
}

// Classifiers of regions, whose tables are updated row by row.
Overrides regions(const Workplace& place, const Overrides& layers) {
  return small_classifier(
      place, joined({"model.positions=none", "model.embedding.region={kind: sequence, shortest: 1, longest: 2}",
                     "task.head={kind: max_pooled, dropout: 0.5, response_norm: true, bag: {kind: naive_bayes, "
                     "buckets: 500, units: 3}}"},
                    layers));
}

Overrides model_of(const Row& row, const Workplace& place) {
  const auto& model = row.model;
  if (model == "memory" && row.mixer == "pooling") return {"model.memory=10"};
  if (model == "regions") return regions(place, {"model.layers=0", "model.heads=4"});
  if (model == "regions_block") return regions(place, {});
  if (model == "classifier")
    return small_classifier(place, {"model.embedding.scale=log_count_ratio",
                                    "model.embedding.ngrams={order: 2, buckets: 64}", "task.head.recalibrate=true"});
  const Overrides packed = {"data.path=" + documents(place), "data.packing=spfhp", "data.tokenizer=byte"};
  const std::map<std::string, Overrides> others = {
      {"transformer", {}},
      {"memory", {"model.memory=10", "model.positions=transformer_xl"}},
      {"packed", packed},
      {"masked", {"task=masked_language_model"}},
      {"masked_packed", joined({"task=masked_language_model", "task.loss=sequence"}, packed)},
      {"sorter", sorter()},
      {"pairs", pairs(place, {"model.layers=1"})},
      {"pairs_tokens", pairs(place, {"model.layers=1", "task.batch_unit=token", "train.batch_size=24"})},
      {"lstm", {"model={kind: lstm, width: 16}"}},
      {"lstm_carry", {"model={kind: lstm, width: 16, carry_state: true}"}},
      {"gru_carry", {"model={kind: gru, width: 16, carry_state: true, embedding: {tie: false}}"}},
      {"feed_forward", {"model={kind: feed_forward, window: 4, width: 8, hidden: 16}"}}};
  return others.at(model);
}

Overrides options_of(const Row& row) {
  static const std::map<std::string, std::string> mixers = {{"sdp", "scaled_dot_product"},
                                                            {"quadratic", "quadratic"},
                                                            {"metric", "metric"},
                                                            {"pooling", "average_pooling"},
                                                            {"identity", "identity"}};
  static const std::map<std::string, std::string> optimizers = {{"adamw", "{kind: adamw, embedding_weight_decay: 0}"},
                                                                {"adam", "{kind: adam, weight_decay: 0.01}"},
                                                                {"sgd", "sgd"},
                                                                {"momentum", "{kind: sgd, momentum: 0.9}"},
                                                                {"muon", "muon"},
                                                                {"adagrad", "adagrad"}};
  static const std::map<std::string, Overrides> computed = {{"plain", {}},
                                                            {"slices", {"train.cpu_slices=2"}},
                                                            {"loss_chunks", {"train.loss_chunks=3"}},
                                                            {"chunks", {"model.feed_forward.chunks=3"}},
                                                            {"reversible", {"model.blocks=reversible"}}};
  static const std::map<std::string, Overrides> dropouts = {
      {"none", {}}, {"model", {"model.dropout=0.2"}}, {"embedding", {"model.embedding.dropout=0.5"}}};
  Overrides options = {"train.optimizer=" + optimizers.at(row.optimizer), "train.precision=" + row.precision,
                       "train.accumulate=" + row.accumulate, "train.weight_average.decay=" + row.average};
  if (row.mixer != "-") options.push_back("model.mixer.kind=" + mixers.at(row.mixer));
  options = joined(joined(options, computed.at(row.computed)), dropouts.at(row.dropout));
  if (row.rates == "-") return options;
  options.emplace_back("train.layer_rate_decay=0.7");
  if (row.mixer != "-")
    options = joined(options, {"train.freeze=[transformer.blocks.0]", "train.rate_factors=[feed_forward.up=2]"});
  return options;
}

}  // namespace

TEST_CASE("models of every kind resume to the byte, wherever the run stopped", "[resume]") {
  const auto row = GENERATE(from_range(rows()));
  const Workplace place;
  CAPTURE(row.model, row.mixer, row.optimizer, row.precision, row.computed, row.accumulate, row.dropout, row.rates,
          row.average, row.cut);
  // The schedule must not depend on the number of steps.
  const std::string schedule = row.accumulate == "1" ? "constant" : "inverse_sqrt";
  const auto common =
      joined(joined(model_of(row, place), options_of(row)),
             joined(evaluates_and_saves_once, {"train.schedule={kind: " + schedule + ", warmup_steps: 2}"}));
  const auto train = [&](const std::string& run, const std::string& steps, bool resume) {
    place.train(run, joined(common, {"train.steps=" + steps}), resume);
  };
  train("whole", "12", false);
  train("cut", row.cut, false);
  torch::manual_seed(99);  // what the generator did before must not matter
  train("cut", "12", true);
  CHECK((model_bytes(place / "whole") == model_bytes(place / "cut")));
  const auto state = state_bytes(place / "cut");
  CHECK((state_bytes(place / "whole") == state));
  CHECK((state.find("memory.blocks.0") != std::string::npos) == (row.model == "memory"));
  CHECK((state.find("memory.hidden") != std::string::npos) == row.model.ends_with("_carry"));
}

TEST_CASE("a run goes on with its own numbering or not at all", "[classification]") {
  const Workplace place;
  place.train("run", classifier(place, {"train.steps=5"}));
  const auto overrides = classifier(place, {"train.steps=9"});
  place.folder().write("table.tsv", std::regex_replace(read_text(place / "table.tsv"), std::regex("good"), "evil"));
  CHECK_THROWS_WITH(place.train("run", overrides, true), ContainsSubstring("the label 'evil' is not among"));
  place.folder().write("table.tsv", marked_table(1400));
  CHECK_THROWS_WITH(place.train("run", overrides, true), ContainsSubstring("the data are not those it was trained on"));
  place.folder().write("table.tsv", marked_table(1500));
  CHECK(place.train("run", overrides, true)["steps"] == 9);
}

}  // namespace metaformer
