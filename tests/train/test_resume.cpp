// A resumed run ends with the bytes of an uninterrupted one, also in a new folder; a changed learning rate is recorded;
// train.epochs; train.init_from gives a training its initial weights.

#include <algorithm>
#include <map>
#include <regex>

#include "base/json.h"
#include "ops/named_tensors.h"
#include "run/checkpoint_surgery.h"
#include "support/failure.h"
#include "tasks/task_examples.h"
#include "train/initial_weights.h"

namespace metaformer::test_resume {

namespace {

// Every pair of values of two columns except the last is in at least one row if a config allows it; found by a greedy
// search. "-": the model has no such option. All options that affect the state in a checkpoint are values here: a new
// option needs a value in a column, and rows that pair it with the others.
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

// A classifier with about 170 training texts, so that an epoch ends within the run.
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
  const auto mixer = row.mixer == "sdp" ? "scaled_dot_product" : row.mixer == "pooling" ? "average_pooling" : row.mixer;
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
  if (row.mixer != "-") options.push_back("model.mixer.kind=" + mixer);
  options = joined(joined(options, computed.at(row.computed)), dropouts.at(row.dropout));
  if (row.rates == "-") return options;
  options.emplace_back("train.layer_rate_decay=0.7");
  if (row.mixer != "-")
    options = joined(options, {"train.freeze=[transformer.blocks.0]", "train.rate_factors=[feed_forward.up=2]"});
  return options;
}

const Overrides words = {"data.tokenizer={kind: word, whitespace: kept, min_count: 1}", "model.embedding.tie=true"};

// The weights of a run's checkpoint by name.
std::map<std::string, torch::Tensor> weights_of(const std::filesystem::path& run, const std::string& checkpoint) {
  const auto loaded = load_checkpoint(RunDirectory::open(run), checkpoint, WithOptimizer::no);
  return {loaded.model.begin(), loaded.model.end()};
}

nlohmann::json report_of(const std::filesystem::path& run) {
  return nlohmann::json::parse(read_text(run / "initial_weights.json"));
}

bool has(const nlohmann::json& names, const std::string& name) {
  return std::count(names.begin(), names.end(), name) > 0;
}

// A rate so low that no weight changes.
const Overrides still = {"train.learning_rate=1e-30", "train.optimizer.weight_decay=0", "train.schedule=constant",
                         "train.steps=1"};

// Trains a new run from a checkpoint of `run`.
nlohmann::ordered_json branch(const Workplace& place, const std::string& run, const std::string& checkpoint,
                              const std::string& out, const Overrides& overrides = {}) {
  return to_json(metaformer::train({.experiment = place.experiment(overrides),
                                    .out = place / out,
                                    .from = NamedCheckpoint{place / run, checkpoint},
                                    .offline = true,
                                    .device = "cpu",
                                    .command_line = {"test"}}));
}

// The content of every file of a folder, and the target of every link. Without train.log, to which a test that trains
// several runs writes the lines of all of them.
std::map<std::string, std::string> contents_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().filename() == "train.log") continue;
    auto& content = contents[entry.path().lexically_relative(folder).string()];
    if (entry.is_symlink())
      content = std::filesystem::read_symlink(entry.path()).string();
    else if (entry.is_regular_file())
      content = read_text(entry.path());
  }
  return contents;
}

nlohmann::json environment_of(const std::filesystem::path& run) {
  return nlohmann::json::parse(read_text(run / "environment.json"));
}

std::string from(const std::filesystem::path& source) { return "train.init_from='" + source.string() + "'"; }

}  // namespace

TEST_CASE("models of every kind resume to the byte after a stop at any step", "[resume]") {
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
  torch::manual_seed(99);  // earlier draws of the generator must not matter
  train("cut", "12", true);
  CHECK((model_bytes(place / "whole") == model_bytes(place / "cut")));
  const auto state = state_bytes(place / "cut");
  CHECK((state_bytes(place / "whole") == state));
  CHECK((state.find("memory.blocks.0") != std::string::npos) == (row.model == "memory"));
  CHECK((state.find("memory.hidden") != std::string::npos) == row.model.ends_with("_carry"));
}

TEST_CASE("a resumed classifier has the temperatures of an uninterrupted one in its checkpoints and its summary",
          "[resume][calibration]") {
  const Workplace place;
  const std::string kind = GENERATE("{kind: limited, tokens: 300}", "whole");
  const auto options = small_classifier(place, {"train.keep_checkpoints=9", "train.eval_interval=4",
                                                "train.schedule=constant", "train.evaluation=" + kind});
  const auto whole = place.train("whole", joined(options, {"train.steps=16"}));
  place.train("cut", joined(options, {"train.steps=8"}));
  const auto resumed = place.train("cut", joined(options, {"train.steps=16"}), true);
  CHECK(whole["temperature"].is_number());
  CHECK(resumed["temperature"] == whole["temperature"]);
  for (const auto* step : {"step-4", "step-8", "step-12", "step-16"}) {
    CAPTURE(step);
    const auto temperature = read_meta(place / "whole/checkpoints" / step)["temperature"];
    CHECK(temperature.is_number());
    CHECK(read_meta(place / "cut/checkpoints" / step)["temperature"] == temperature);
  }
  const auto best = "step-" + std::to_string(whole["best_step"].get<std::int64_t>());
  CHECK(read_meta(place / "whole/checkpoints" / best)["temperature"] == whole["temperature"]);
}

TEST_CASE("every mixer resumes to the byte, also with a state that memory carries", "[resume]") {
  const auto kind = GENERATE(from_range(kinds_of<MixerConfig>()));
  CAPTURE(kind);
  const auto mixer = *make_kind<MixerConfig>(kind);
  const bool remembers = carries_state(mixer);
  const Workplace place;
  auto common = joined(evaluates_and_saves_once, {"model.mixer=" + kind, "train.schedule=constant"});
  if (remembers) common = joined(common, {"model.memory=10", "model.positions=none"});
  if (!can_be_causal(mixer)) common = joined(common, {"task=masked_language_model"});
  place.train("whole", joined(common, {"train.steps=6"}));
  place.train("cut", joined(common, {"train.steps=3"}));
  torch::manual_seed(99);
  place.train("cut", joined(common, {"train.steps=6"}), true);
  CHECK((model_bytes(place / "whole") == model_bytes(place / "cut")));
  CHECK((state_bytes(place / "whole") == state_bytes(place / "cut")));
}

TEST_CASE("a run from a checkpoint of another run ends like that run, which stays as it is", "[resume][from]") {
  const Workplace place;
  const Overrides keeps_all = {"train.keep_checkpoints=9", "train.optimizer=muon", "task.sample_interval=4"};
  place.train("run", keeps_all);
  const auto before = contents_of(place / "run");
  const std::string step = GENERATE("4", "8");
  branch(place, "run", "step-" + step, "branch", keeps_all);
  CHECK(contents_of(place / "run") == before);
  CHECK(model_bytes(place / "branch") == model_bytes(place / "run"));
  CHECK(state_bytes(place / "branch") == state_bytes(place / "run"));
  CHECK(metrics_without_time(place / "branch") == metrics_without_time(place / "run"));
  CHECK(read_text(place / "branch/samples.jsonl") == read_text(place / "run/samples.jsonl"));
  const auto link = [&](const std::string& run) {
    return std::filesystem::read_symlink(place / (run + "/checkpoints/best"));
  };
  CHECK(link("branch") == link("run"));
  const nlohmann::json continued = {{"run", std::filesystem::canonical(place / "run").string()},
                                    {"checkpoint", "step-" + step},
                                    {"step", std::stoi(step)}};
  CHECK(environment_of(place / "branch")["continued_from"] == continued);
  place.train("branch", joined(keeps_all, {"train.steps=16"}), true);
  const auto environment = environment_of(place / "branch");
  CHECK(environment["continued_from"] == continued);
  REQUIRE(environment["sessions"].size() == 3);
  CHECK(environment["sessions"][1]["first_step"] == std::stoi(step));
  CHECK(environment["sessions"][2]["first_step"] == 12);
}

TEST_CASE("a run from a checkpoint has the best checkpoint until then, and may have another learning rate",
          "[resume][from]") {
  const Workplace place;
  const Overrides keeps_all = {"train.keep_checkpoints=9", "train.eval_interval=3"};
  place.train("run", keeps_all);
  const auto meta = read_meta(place / "run/checkpoints/step-8");
  const auto best = "step-" + std::to_string(meta["best"]["step"].get<std::int64_t>());
  REQUIRE(std::filesystem::exists(place / "run/checkpoints" / best));
  branch(place, "run", "step-8", "branch", joined(keeps_all, {"train.learning_rate=1e-30", "train.schedule.floor=0"}));
  CHECK(read_text(place / "branch/checkpoints" / best / "model.safetensors") ==
        read_text(place / "run/checkpoints" / best / "model.safetensors"));
  CHECK(metrics_of(place / "branch", "train").front() == metrics_of(place / "run", "train").front());
  const auto lines = metrics_of(place / "branch", "resume");
  REQUIRE(lines.size() == 1);
  CHECK(lines.front()["step"] == 8);
  CHECK(lines.front()["train.learning_rate"]["is"] == 1e-30);
  CHECK(model_bytes(place / "branch", "step-8") == model_bytes(place / "run", "step-8"));
  CHECK(model_bytes(place / "branch") != model_bytes(place / "run"));
}

TEST_CASE("a checkpoint from which no run can begin is an error that leaves no folder", "[resume][from]") {
  const Workplace place;
  place.train("run", {"train.keep_checkpoints=9"});
  const Overrides same = {"train.keep_checkpoints=9"};
  for (const auto& [checkpoint, overrides, text] : std::vector<std::tuple<std::string, Overrides, std::string>>{
           {"step-99", same, "--from step-99|step-12|step-4"},
           {"last", same, "--from last|ends at step 12"},
           {"step-8", {"train.steps=6"}, "train.steps is 6|has done 8 steps"},
           {"step-8", {"model.width=32"}, "model.width is 32 now and was 16"}}) {
    CHECK_THAT(message_of(ExitCode::usage, [&] { branch(place, "run", checkpoint, "branch", overrides); }),
               Mentions(text));
    CHECK_FALSE(std::filesystem::exists(place / "branch"));
  }
  CHECK_THAT(message_of(ExitCode::usage, [&] { branch(place, "run", "step-4", "run", same); }),
             Mentions("already exists"));
  // A damaged checkpoint is not replaced by another one.
  std::ofstream(place / "run/checkpoints/step-4/model.safetensors") << "damaged";
  CHECK_THAT(message_of(ExitCode::failure, [&] { branch(place, "run", "step-4", "branch", same); }),
             Mentions("model.safetensors: damaged"));
  CHECK_FALSE(std::filesystem::exists(place / "branch"));
}

TEST_CASE("another learning rate is used from the resume on, and recorded once", "[resume]") {
  const Workplace place;
  const Overrides common = {"train.schedule={kind: constant, warmup_steps: 2}", "train.eval_interval=1000",
                            "train.checkpoint_interval=1000"};
  place.train("run", joined(common, {"train.steps=6"}));
  const auto other = joined(common, {"train.learning_rate=5e-4"});
  place.train("run", joined(other, {"train.steps=12"}), true);
  place.train("run", joined(other, {"train.steps=15"}), true);
  std::vector<double> rates;
  for (const auto& line : metrics_of(place / "run", "train")) rates.push_back(line["learning_rate"]);
  CHECK(rates == std::vector<double>{1e-3, 1e-3, 5e-4, 5e-4, 5e-4});
  const auto lines = metrics_of(place / "run", "resume");
  REQUIRE(lines.size() == 1);
  const nlohmann::ordered_json change = {{"was", 1e-3}, {"is", 5e-4}};
  CHECK(lines.front() == nlohmann::ordered_json{{"step", 6}, {"split", "resume"}, {"train.learning_rate", change}});
  const auto sessions = environment_of(place / "run")["sessions"];
  CHECK_FALSE(sessions[0].contains("changes"));
  CHECK(sessions[1]["changes"]["train.learning_rate"] == change);
  CHECK(sessions[1]["changes"]["train.steps"] == nlohmann::json{{"was", 6}, {"is", 12}});
  CHECK_FALSE(sessions[2]["changes"].contains("train.learning_rate"));
  CHECK_THAT(message_of(ExitCode::usage, [&] { place.train("run", joined(other, {"train.clip=0.5"}), true); }),
             Mentions("train.clip is 0.5 now and was 1|learning rate"));
}

TEST_CASE("a learning rate below the floor of the schedule takes its own floor", "[resume]") {
  const Workplace place;
  place.train("run", {"train.steps=6"});
  place.train("run", {"train.learning_rate=5e-5"}, true);
  const auto lines = metrics_of(place / "run", "resume");
  REQUIRE(lines.size() == 1);
  CHECK(lines.front()["train.schedule.floor"]["was"] == 1e-4);
  CHECK(lines.front()["train.schedule.floor"]["is"].get<double>() == Approx(5e-6));
  CHECK(metrics_of(place / "run", "train").back()["learning_rate"].get<double>() < 5e-5);
}

TEST_CASE("train.epochs gives the fewest steps that see the data so often", "[resume][epochs]") {
  const Workplace place;
  std::string table = "text,label\n";
  for (int i = 0; i < 100; ++i) table += fmt::format("w{} x,c{}\n", i, i % 2);
  const auto file = place.folder().write("table.csv", table).string();
  const Overrides classifies = {"task=classification", "data.path='" + file + "'", "task.baselines=false"};
  const auto summary = place.train("run", joined(classifies, {"train.epochs=2.5"}));
  const auto texts = 100 - summary["validation"]["texts"].get<std::int64_t>();
  CHECK(summary["steps"] == (5 * texts + 11) / 12);  // 2.5 * texts / 6, rounded up
  CHECK(summary["epochs"].get<double>() >= 2.5);
  CHECK(summary["stopped_early"] == false);
  const auto config = load_run_experiment(place / "run/config.yaml").config;
  CHECK(config.train.epochs == 2.5);
  CHECK_THAT(read_text(place / "run/train.log"), Mentions("train.epochs 2.5: " + summary["steps"].dump() + " steps"));
  // All texts of an epoch in as many whole steps.
  const auto batch = "train.batch_size=" + std::to_string(texts);
  CHECK(place.train("whole", joined(classifies, {batch, "train.epochs=3"}))["steps"] == 3);
}

TEST_CASE("a run of epochs resumes to the byte, and is not trained again when it is finished", "[resume][epochs]") {
  const Workplace place;
  const auto train = [&](const std::string& run, const std::string& length, bool resume) {
    return place.train(run, joined(evaluates_and_saves_once, {"train.schedule=constant", length}), resume);
  };
  const auto whole = train("whole", "train.epochs=0.1", false);
  train("cut", "train.steps=3", false);
  CHECK(train("cut", "train.epochs=0.1", true)["steps"] == whole["steps"]);
  CHECK(model_bytes(place / "cut") == model_bytes(place / "whole"));
  CHECK(train("whole", "train.epochs=0.1", true) == whole);
  CHECK(environment_of(place / "whole")["sessions"].size() == 1);
  const auto steps = whole["steps"].get<std::int64_t>();
  CHECK(train("whole", "train.epochs=0.2", true)["steps"] > steps);
  CHECK(train("whole", "train.steps=" + std::to_string(3 * steps), true)["steps"] == 3 * steps);
  CHECK_THAT(message_of(ExitCode::usage, [&] { train("whole", "train.epochs=0.1", true); }),
             Mentions("train.epochs is " + std::to_string(steps) + "|has done " + std::to_string(3 * steps)));
}

TEST_CASE("epochs of data without an end, and of one batch, are errors", "[resume][epochs]") {
  const Workplace place;
  for (const auto& [overrides, text] : std::vector<std::pair<Overrides, std::string>>{
           {sorter(), "--set train.epochs=2: train.epochs: 2 has no meaning for task sort|train.steps"},
           {{"train.overfit_batch=true"}, "train.epochs: 2 has no meaning with train.overfit_batch"},
           {{"train.epochs=1e12"}, "train.epochs: 1000000000000|steps"}}) {
    const auto all = joined({"train.epochs=2"}, overrides);
    CHECK_THAT(message_of(ExitCode::usage, [&] { place.train("run", all); }), Mentions(text));
    CHECK_FALSE(std::filesystem::exists(place / "run"));
  }
}

TEST_CASE("a classifier is resumed only with the data that it was trained on", "[classification]") {
  const Workplace place;
  place.train("run", classifier(place, {"train.steps=5"}));
  const auto overrides = classifier(place, {"train.steps=9"});
  place.folder().write("table.tsv", std::regex_replace(read_text(place / "table.tsv"), std::regex("good"), "evil"));
  CHECK_THROWS_WITH(place.train("run", overrides, true), ContainsSubstring("the label 'evil'"));
  place.folder().write("table.tsv", marked_table(1400));
  CHECK_THROWS_WITH(place.train("run", overrides, true), Mentions("not those|trained on"));
  place.folder().write("table.tsv", marked_table(1500));
  CHECK(place.train("run", overrides, true)["steps"] == 9);
}

TEST_CASE("a run can start with the best weights of another run", "[init_from]") {
  const Workplace place;
  place.train("first", {"train.learning_rate=0.01"});
  place.train("second", joined(still, {from(place / "first"), "train.seed=5"}));
  const auto before = weights_of(place / "first", "best"), after = weights_of(place / "second", "last");
  CHECK(before.size() == after.size());
  for (const auto& [name, tensor] : before) CHECK(torch::equal(tensor, after.at(name)));
  const auto report = report_of(place / "second");
  CHECK(report["taken"].size() == before.size());
  CHECK(report["new"].empty());
  CHECK(report["left"].empty());
  CHECK(report["sha256"].get<std::string>().size() == 64);
  // It can also start with those of one checkpoint, or of a different run for every seed.
  place.train("third", joined(still, {from(place / "first/checkpoints/step-8")}));
  CHECK(torch::equal(weights_of(place / "third", "last").begin()->second,
                     weights_of(place / "first", "step-8").begin()->second));
  std::filesystem::rename(place / "first", place / "first-5");
  place.train("fourth", joined(still, {from(place / "first-{seed}"), "train.seed=5"}));
  CHECK(torch::equal(weights_of(place / "fourth", "last").begin()->second, before.begin()->second));
}

TEST_CASE("a classifier takes the weights and the tokenizer of a language model", "[init_from][classification]") {
  const Workplace place;
  place.train("language_model", joined(words, {"train.learning_rate=0.01", "model.layers=1"}));
  const auto tokenizer = read_text(place / "language_model/checkpoints/best/tokenizer.json");
  const std::string head = GENERATE("mean_pooled", "first_token");
  place.train("classifier", classifier(place, joined(still, {from(place / "language_model"), "task.head=" + head})));
  CHECK(read_text(place / "classifier/checkpoints/last/tokenizer.json") == tokenizer);
  const auto before = weights_of(place / "language_model", "best"), after = weights_of(place / "classifier", "last");
  const auto report = report_of(place / "classifier");
  CHECK(has(report["new"], "head.weight"));
  CHECK(has(report["new"], "head.bias"));
  for (const auto& [name, tensor] : before) {
    INFO(name);
    const auto rows = tensor.dim() == 0 ? 0 : tensor.size(0);
    CHECK(torch::equal(after.at(name).narrow(0, 0, rows), tensor));  // a class token adds the last row
  }
  // A row of the class token, and one of its position.
  CHECK(report["taken_in_part"].size() == (head == "first_token" ? 2 : 0));
  CHECK(read_text(place / "classifier/config.yaml").find("kind: word") != std::string::npos);
}

TEST_CASE("a classifier takes the head of another one only if the classes are the same",
          "[init_from][classification]") {
  const Workplace place;
  place.train("first", classifier(place, {"train.learning_rate=0.01", "train.steps=4"}));
  place.train("same", classifier(place, joined(still, {from(place / "first")})));
  CHECK(has(report_of(place / "same")["taken"], "head.weight"));
  place.folder().write("other.tsv", std::regex_replace(marked_table(1500), std::regex("good"), "best"));
  const auto path = "data.path='" + (place / "other.tsv").string() + "'";
  place.train("other", classifier(place, joined(still, {from(place / "first"), path})));
  const auto report = report_of(place / "other");
  CHECK(has(report["new"], "head.weight"));
  CHECK(has(report["left"], "head.weight"));
}

TEST_CASE("a longer context keeps the trained positions, and another mixer leaves the weights of the old one",
          "[init_from]") {
  const Workplace place;
  place.train("first", {"train.steps=2", "model.mixer=scaled_dot_product"});
  place.train("second", joined(still, {from(place / "first"), "model.context=24", "model.mixer=average_pooling"}));
  const auto name = "transformer.position_embedding.weight";
  CHECK(torch::equal(weights_of(place / "second", "last").at(name).narrow(0, 0, 16),
                     weights_of(place / "first", "best").at(name)));
  const auto report = report_of(place / "second");
  CHECK(report["taken_in_part"] == nlohmann::json::array({"transformer.position_embedding.weight (16 of 24 rows)"}));
  CHECK(report["new"].empty());
  CHECK(report["left"].size() == 4);  // two layers with a projection and an output each
  CHECK(has(report["taken"], "transformer.blocks.1.feed_forward.up.weight"));
}

TEST_CASE("a run with initial weights resumes to the byte without their source", "[init_from]") {
  const Workplace place;
  place.train("source", joined(words, {"train.steps=3"}));
  const auto steps = [&](const std::string& count) {
    return Overrides{from(place / "source"), "train.steps=" + count,
                     "train.schedule={kind: constant, warmup_steps: 2}"};
  };
  place.train("whole", steps("12"));
  place.train("cut", steps("5"));
  std::filesystem::remove_all(place / "source");
  place.train("cut", steps("12"), true);
  CHECK(model_bytes(place / "whole") == model_bytes(place / "cut"));
}

TEST_CASE("initial weights that do not fit a training are an error", "[init_from]") {
  const Workplace place;
  place.train("source", joined(words, {"train.steps=1"}));
  const auto table = classifier(place).at(1);  // data.path
  place.train("linear", {"task=classification", table, "model=linear"});
  for (const auto& [overrides, text] : std::vector<std::pair<Overrides, std::string>>{
           {{from(place / "nowhere")}, "config.yaml|meta.json|Hugging Face"},
           {{"model.width=32"}, "model.width|32|16"},
           {{"data.tokenizer=byte"}, "tokenizer (word)"},
           {sorter(), "task sort"},
           {classifier(place, {from(place / "linear")}), "a linear model"}}) {
    const auto all = joined({from(place / "source")}, overrides);
    CHECK_THAT(message_of(ExitCode::usage, [&] { place.train("target", all); }), Mentions(text));
    CHECK_FALSE(std::filesystem::exists(place / "target"));
  }
  // The config may also have the same tokenizer.
  CHECK_NOTHROW(place.train("same", joined(joined(words, still), {from(place / "source")})));
}

TEST_CASE("keys that change the function of a model are named, others are not", "[init_from]") {
  const Workplace place;
  const auto here = place.experiment({"model.heads=4", "model.dropout=0.3", "model.norm.epsilon=1e-6"}).config;
  const auto there = place.experiment({"model.context=8"}).config;
  CHECK(differing_model_keys(here, there) ==
        Overrides{"model.heads is 4 here and 2 there", "model.norm.epsilon is 1.0e-06 here and 1.0e-05 there"});
  const auto untied = place.experiment({"model.embedding.tie=false"}).config;
  CHECK(differing_model_keys(place.experiment({}).config, untied).size() == 1);
  CHECK(differing_model_keys(place.experiment(classifier(place, {"model.layers=2"})).config, untied).empty());
}

}  // namespace metaformer::test_resume
