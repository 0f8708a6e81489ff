// Configs chosen by data and machine: valid, small enough, and read back from YAML as they were chosen.

#include "base/utf8.h"
#include "config/loader.h"
#include "config/writer.h"
#include "model/memory_estimate.h"
#include "support/failure.h"
#include "support/temporary_folder.h"
#include "support/torch_catch.h"
#include "train/starting_config.h"

namespace metaformer::test_starting_config {

namespace {

constexpr std::uint64_t GiB = std::uint64_t{1} << 30;
const Machine usual = {.threads = 2, .memory = 8 * GiB, .operations_per_second = 1e11, .has_half_products = false};
const Machine h200 = machine_of(cuda::Device{.name = "NVIDIA H200", .major = 9, .minor = 0, .memory = 140 * GiB});

TextLook text_of(double bytes, const std::string& sample = "some text") {
  TextLook look;
  look.name = "book.txt";
  look.data.path = "/data/book.txt";
  look.bytes = look.all_characters = bytes;
  look.characters.add(sample);
  return look;
}

TableLook table_of(double rows, std::int64_t length = 20) {
  TableLook look;
  look.name = "t.csv";
  look.data.path = "/data/t.csv";
  look.rows = rows;
  look.classes = {{"a", 60}, {"b", 40}};
  look.lengths.words = look.lengths.characters = {
      .mean = static_cast<double>(length), .median = length, .percentile_95 = length, .longest = length};
  look.words = 5000;
  look.repeated_words = 3000;
  return look;
}

PairsLook pairs_of(double pairs, std::int64_t words = 10) {
  PairsLook look;
  look.name = "t.tsv";
  look.data.path = "/data/t.tsv";
  look.pairs = pairs;
  look.characters.add("some text");
  for (auto* side : {&look.source, &look.target}) {
    side->words = {.mean = static_cast<double>(words), .median = words, .percentile_99 = 2 * words};
    side->characters = {.mean = 6.0 * static_cast<double>(words), .percentile_99 = 12 * words};
  }
  return look;
}

// The chosen value of a key; null if it is not chosen.
nlohmann::ordered_json value_of(const StartingConfig& config, const std::string& key) {
  for (const auto& chosen : config.keys)
    if (chosen.key == key && !chosen.is_suggestion) return chosen.value;
  return nullptr;
}

Experiment read_back(const StartingConfig& config) {
  const TemporaryFolder folder;
  return load_experiment(folder.write("c.yaml", to_yaml(config, {"head"})).string());
}

// The chosen keys as arguments of --set.
Experiment applied(const StartingConfig& config) {
  std::vector<std::string> settings;
  for (const auto& chosen : config.keys)
    if (!chosen.is_suggestion) settings.push_back(chosen.key + "=" + yaml_value(chosen.value));
  return default_experiment(settings);
}

// The keys for the machine are valid, and YAML has the same ones.
void check_choice(const StartingConfig& config, const Machine& machine) {
  const auto experiment = read_back(config);
  CHECK(config_to_json(experiment.config) == config_to_json(applied(config).config));
  CHECK(config_warnings(experiment.config, experiment.provenance).empty());
  const auto memory = estimate_memory(experiment.config);
  CHECK(memory.state() + memory.activations <= machine.memory);
  CHECK(config.steps >= 200);
  CHECK(experiment.config.train.steps == config.steps);
  CHECK(config.steps % experiment.config.train.eval_interval == 0);
}

}  // namespace

TEST_CASE("a config for any amount of data and any machine is valid and fits", "[starting_config]") {
  const double amount = GENERATE(5e2, 2e4, 3e5, 5e6, 1e9, 1e12);
  const auto machine =
      GENERATE(as<Machine>{}, usual, h200, Machine{.threads = 1, .memory = GiB / 2, .operations_per_second = 5e9},
               Machine{.threads = 64, .memory = 256 * GiB, .operations_per_second = 1e13, .has_half_products = true},
               machine_of(cuda::Device{.name = "NVIDIA T4", .major = 7, .minor = 5, .memory = GiB}));
  check_choice(choose_config(text_of(amount), machine), machine);
  check_choice(choose_config(table_of(amount / 50), machine), machine);
  check_choice(choose_config(pairs_of(amount / 50), machine), machine);
}

TEST_CASE("training takes about five minutes at most, unless the smallest model takes longer", "[starting_config]") {
  for (const double bytes : {1e4, 1e6, 1e8, 1e10}) {
    CHECK(choose_config(text_of(bytes), usual).seconds() < 330);
    CHECK(choose_config(table_of(bytes / 50), usual).seconds() < 330);
    CHECK(choose_config(pairs_of(bytes / 50), usual).seconds() < 330);
  }
}

TEST_CASE("more data, more speed and more memory make larger models", "[starting_config]") {
  auto fast = usual, small = usual;
  fast.operations_per_second = 1e14;
  small.memory = GiB / 8;
  const auto parameters = [](double bytes, const Machine& machine) {
    return choose_config(text_of(bytes), machine).parameters;
  };
  CHECK(parameters(1e4, fast) < parameters(1e6, fast));
  CHECK(parameters(1e6, fast) < parameters(1e9, fast));
  CHECK(parameters(1e9, usual) < parameters(1e9, fast));
  small.operations_per_second = fast.operations_per_second;
  CHECK(parameters(1e9, small) < parameters(1e9, fast));
  const auto pairs = [](double count, const Machine& machine) {
    return choose_config(pairs_of(count), machine).parameters;
  };
  CHECK(pairs(100, fast) < pairs(1e4, fast));
  CHECK(pairs(1e4, fast) < pairs(1e7, fast));
}

TEST_CASE("the tokenizer of a text follows from its size and its characters", "[starting_config]") {
  const auto tokenizer = [](const TextLook& look) { return value_of(choose_config(look, usual), "data.tokenizer"); };
  std::string many;
  for (char32_t point = 0x4E00; point < 0x4E00 + 3000; ++point) many += to_utf8(point);
  CHECK(tokenizer(text_of(1e6)) == "character");
  CHECK(tokenizer(text_of(1e7))["kind"] == "bpe");
  CHECK(tokenizer(text_of(1e7))["whitespace"] == "kept");
  CHECK(tokenizer(text_of(1e6, many))["kind"] == "bpe");
  CHECK(tokenizer(text_of(1e6, many))["vocabulary"] > 3256);  // characters and bytes
  CHECK(tokenizer(text_of(1e10))["vocabulary"] > tokenizer(text_of(1e7))["vocabulary"]);
  auto bytes = text_of(1e7);
  bytes.is_utf8 = false;
  CHECK(tokenizer(bytes) == "byte");
}

TEST_CASE("a text that is too short is refused, and a short one has a short context", "[starting_config]") {
  CHECK_THAT(message_of(ExitCode::data, [] { choose_config(text_of(300), usual); }), Mentions("book.txt|300|400"));
  for (const double characters : {400.0, 1000.0, 5000.0}) {
    const auto context = value_of(choose_config(text_of(characters), usual), "model.context").get<double>();
    CHECK(context >= 8);
    CHECK(context + 1 < characters / 10);  // the validation split has a window
  }
}

TEST_CASE("the context of a table holds most of its texts, and that of pairs nearly all", "[starting_config]") {
  const auto context = [](const auto& look) {
    return value_of(choose_config(look, usual), "model.context").template get<std::int64_t>();
  };
  CHECK(context(table_of(1000, 5)) == 16);
  CHECK(context(table_of(1000, 100)) == 104);
  CHECK(context(table_of(1000, 100'000)) == 512);
  CHECK(context(pairs_of(1000, 10)) == 64);
  CHECK(context(pairs_of(1000, 100'000)) == 512);
}

TEST_CASE("unequal classes are weighted, and ratings are suggested in a comment", "[starting_config]") {
  auto look = table_of(5000);
  CHECK(value_of(choose_config(look, usual), "task.class_weights") == nullptr);
  look.classes = {{"5", 900}, {"1", 100}, {"3", 50}};
  look.rating.emplace();
  look.rating->positive_from = 5;
  look.rating->negative_to = 1;
  const auto config = choose_config(look, usual);
  CHECK(value_of(config, "task.class_weights") == "balanced");
  CHECK_THAT(to_yaml(config, {}), Mentions("data:|  # rating: {positive_from: 5, negative_to: 1}\n|tokenizer:"));
  CHECK_FALSE(classification(read_back(config).config).data.rating.positive_from);
}

TEST_CASE("a table of a script without spaces has no word tokenizer", "[starting_config]") {
  auto look = table_of(100);
  look.characters.add("\u81EA\u7136\u8A9E");
  CHECK(value_of(choose_config(look, usual), "data.tokenizer") == "character");
  look.rows = 1e6;
  CHECK(value_of(choose_config(look, usual), "data.tokenizer")["kind"] == "unigram");
  check_choice(choose_config(look, usual), usual);
}

TEST_CASE("what reading the data needs is in the config", "[starting_config]") {
  auto look = table_of(100);
  look.data.path = "/data/a \xff # b.csv";
  look.data.format = TableFormat::tsv;
  look.data.header = TableHeader::absent;
  look.data.text_field = "2";
  look.data.label_field = "1";
  look.data.malformed_limit = 0.01;
  look.data.validation_fraction = 0.3;
  const auto data = classification(read_back(choose_config(look, usual)).config).data;
  CHECK(*data.path == *look.data.path);
  CHECK(data.format == TableFormat::tsv);
  CHECK(data.header == TableHeader::absent);
  CHECK(data.text_field == "2");
  CHECK(data.label_field == "1");
  CHECK(data.malformed_limit == 0.01);
  CHECK(data.validation_fraction == 0.3);
  auto lines = pairs_of(100);
  lines.data.target_path = "/data/t.en";
  const auto pairs = std::get<SequenceToSequenceConfig>(read_back(choose_config(lines, usual)).config.task).data;
  CHECK(pairs.target_path == "/data/t.en");
}

TEST_CASE("comments of the config are lines of their own, without control characters", "[starting_config]") {
  const auto config = choose_config(text_of(1e6), usual);
  const auto yaml = to_yaml(config, {"one\ntwo: [\x1b", std::string(400, 'x') + " " + std::string(200, 'y')});
  std::istringstream lines(yaml);
  std::string line;
  for (int i = 0; i < 3 && std::getline(lines, line); ++i) CHECK(line.starts_with("# "));
  CHECK(yaml.find('\x1b') == std::string::npos);
  const TemporaryFolder folder;
  CHECK(config_to_json(load_experiment(folder.write("c.yaml", yaml).string()).config) ==
        config_to_json(applied(config).config));
}

TEST_CASE("a GPU gets a larger model, larger batches and bf16, and the config says so", "[starting_config]") {
  const auto check = [](const auto& look) {
    const auto on_cpu = choose_config(look, usual), on_gpu = choose_config(look, h200);
    CHECK(on_gpu.parameters >= on_cpu.parameters);
    CHECK(value_of(on_gpu, "train.batch_size") > value_of(on_cpu, "train.batch_size"));
    CHECK(value_of(on_gpu, "train.precision") == "bf16");
    CHECK_THAT(to_yaml(on_gpu, {}), Mentions("for a GPU|batch_size:|This GPU has instructions for bf16|bf16"));
    CHECK(to_yaml(on_cpu, {}).find("This GPU") == std::string::npos);
    return on_gpu.parameters > on_cpu.parameters;
  };
  CHECK(check(text_of(1e8)));
  CHECK(check(pairs_of(3e5)));
  check(table_of(1e4));
  CHECK_THAT(describe(choose_config(text_of(1e8), h200), h200),
             Mentions("this GPU has 140|of training on NVIDIA H200"));
}

TEST_CASE("few data do not make larger batches on a GPU", "[starting_config]") {
  const auto batch = [](const Machine& machine) {
    return value_of(choose_config(text_of(5000), machine), "train.batch_size");
  };
  CHECK(batch(h200) == batch(usual));
}

TEST_CASE("a GPU older than bf16 trains in fp32", "[starting_config]") {
  const auto machine = machine_of(cuda::Device{.name = "NVIDIA V100", .major = 7, .minor = 0, .memory = 16 * GiB});
  CHECK(machine.is_gpu());
  const auto config = choose_config(text_of(1e6), machine);
  CHECK(value_of(config, "train.precision") == "fp32");
  CHECK_THAT(to_yaml(config, {}), Mentions("This GPU has no instructions for bf16"));
}

TEST_CASE("the CPU of this machine has threads, memory and a speed", "[starting_config]") {
  const auto machine = machine_of(torch::kCPU);
  CHECK_FALSE(machine.is_gpu());
  CHECK(machine.threads >= 1);
  CHECK(machine.memory > GiB / 4);
  CHECK(machine.operations_per_second > 1e9);
}

}  // namespace metaformer::test_starting_config
