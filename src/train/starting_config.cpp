#include "train/starting_config.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "base/json.h"
#include "base/text.h"
#include "config/loader.h"
#include "config/writer.h"
#include "cpu/vector_code.h"
#include "model/memory_estimate.h"
#include "model/model_costs.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

constexpr double most_seconds = 300;        // of the training
constexpr double part_of_memory = 0.5;      // that the training may take
constexpr std::int64_t useful_steps = 600;  // a model that cannot make them in time is too large

using Keys = std::vector<ChosenKey>;

// The number of steps, and the times that they see each training token.
struct Course {
  std::int64_t steps = 1000;
  double epochs = 1;
  bool is_cut = false;  // by the time
};

// The data of a training.
struct Amounts {
  double epoch_steps = 0;  // steps in which each training token is seen once
  double step_tokens = 0;  // that the model computes in a step
  double epochs = 0;       // as many as are useful
  std::int64_t fewest_steps = 0, most_steps = 0;
};

std::vector<std::string> settings(const Keys& keys) {
  std::vector<std::string> settings;
  for (const auto& [key, value, reason, is_suggestion] : keys)
    if (!is_suggestion) settings.push_back(fmt::format("{}={}", key, yaml_value(value)));
  return settings;
}

// Two significant digits, and a multiple of 10.
std::int64_t rounded(double steps) {
  double unit = 10;
  while (steps / unit >= 100) unit *= 10;
  return static_cast<std::int64_t>(std::max(1.0, std::round(steps / unit)) * unit);
}

Course course_of(const Amounts& amounts, double step_seconds) {
  const auto wanted = std::clamp(amounts.epochs * amounts.epoch_steps, static_cast<double>(amounts.fewest_steps),
                                 static_cast<double>(amounts.most_steps));
  const auto possible = std::max(static_cast<double>(amounts.fewest_steps), most_seconds / step_seconds);
  const auto steps = rounded(std::min(wanted, possible));
  return {.steps = steps, .epochs = static_cast<double>(steps) / amounts.epoch_steps, .is_cut = possible < wanted};
}

// Sets the estimates of the config.
MemoryEstimate estimate(StartingConfig& config, const ModelSizes& sizes, double step_tokens, const Machine& machine) {
  constexpr double passes = 3, overhead = 2e-3;  // forward, and backward twice as much; seconds
  auto keys = settings(config.keys);
  if (machine.is_gpu()) keys.emplace_back("train.cpu_slices=1");  // the whole batch at once
  const auto resolved = default_experiment(keys).config;
  const auto memory = estimate_memory(resolved, sizes);
  const auto operations = costs_of(resolved, sizes.vocabulary).operations_per_token;
  config.parameters = memory.parameters;
  config.memory = memory.total();
  config.step_seconds = overhead + passes * step_tokens * operations / machine.operations_per_second;
  return memory;
}

bool fits(const MemoryEstimate& memory, const Machine& machine) {
  return static_cast<double>(memory.state() + memory.activations) <=
         part_of_memory * static_cast<double>(machine.memory);
}

// The config of one size of model: `keys_of` gives its keys for a course.
struct Plan {
  StartingConfig config;
  bool fits = false;
};

template <class KeysOf>
Plan make_plan(KeysOf keys_of, const Amounts& amounts, const ModelSizes& sizes, const Machine& machine) {
  Plan plan{.config = {.keys = keys_of(Course{})}};
  estimate(plan.config, sizes, amounts.step_tokens, machine);
  const auto course = course_of(amounts, plan.config.step_seconds);
  plan.config.steps = course.steps;
  plan.config.keys = keys_of(course);
  plan.fits = fits(estimate(plan.config, sizes, amounts.step_tokens, machine), machine);
  return plan;
}

// The largest size for which there are enough data, memory and time. The batch of the smallest one becomes smaller
// where memory does not suffice. `plan_of(size)` makes a plan.
template <class Size, class PlanOf>
StartingConfig choose_size(std::span<const Size> sizes, double amount, PlanOf plan_of) {
  for (auto i = sizes.size() - 1; i > 0; --i) {
    if (amount < sizes[i].fewest) continue;
    auto plan = plan_of(sizes[i]);
    if (plan.fits && plan.config.step_seconds * useful_steps <= most_seconds) return std::move(plan.config);
  }
  auto smallest = sizes[0];
  auto plan = plan_of(smallest);
  for (; !plan.fits && smallest.batch > 1; plan = plan_of(smallest)) smallest.batch /= 2;
  return std::move(plan.config);
}

void add(Keys& keys, const std::string& key, Json value, std::string reason = "") {
  keys.push_back({.key = key, .value = std::move(value), .reason = std::move(reason)});
}

template <class Value>
void add_unless(Keys& keys, const std::string& key, const Value& value, const Value& usual, std::string reason = "") {
  if (value != usual) add(keys, key, value, std::move(reason));
}

void add_format(Keys& keys, TableFormat format) {
  add_unless(keys, "data.format", std::string(to_string(format)), std::string(to_string(TableFormat::automatic)),
             "The name of the file stands for another format.");
}

void add_header(Keys& keys, TableHeader header) {
  add_unless(keys, "data.header", std::string(to_string(header)), std::string(to_string(TableHeader::automatic)));
}

void add_path(Keys& keys, const DataConfig& data) {
  add(keys, "data.path", std::string(*data.path),
      "Absolute, so that it is found from every folder. A relative path begins at the working folder of the training.");
}

void add_malformed(Keys& keys, const DataConfig& data, const char* units) {
  add_unless(keys, "data.malformed_limit", data.malformed_limit, 0.0,
             fmt::format("Some {} are malformed, and are left out.", units));
}

void add_fraction(Keys& keys, const DataConfig& data, double rows) {
  constexpr double usual = 0.1;
  add_unless(keys, "data.validation_fraction", data.validation_fraction, usual,
             data.validation_fraction < usual
                 ? fmt::format("Enough of {} rows for the validation split.", human_count(rows))
                 : "Few rows: a tenth would not make a validation split.");
}

std::string describe_course(const Course& course, const char* what) {
  if (course.is_cut)
    return fmt::format("As many as five minutes allow: each {} is seen {} times. More are better.", what,
                       human_count(course.epochs));
  return fmt::format("Each {} is seen about {} times.", what, human_count(course.epochs));
}

// The batch size on this device. A GPU needs many tokens at once, as far as an epoch of so many sequences of that
// length has them.
std::int64_t batch_on(const Machine& machine, std::int64_t usual, double sequences, double length) {
  constexpr double busy_tokens = 16'384, fewest_steps = 8, most_times = 4;
  if (!machine.is_gpu()) return usual;
  const auto least = static_cast<double>(usual);
  const auto most = std::min({most_times * least, busy_tokens / length, sequences / fewest_steps});
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(std::max(most, least))));
}

void add_batch(Keys& keys, std::int64_t batch, const Machine& machine, std::string reason = "") {
  if (machine.is_gpu())
    reason += (reason.empty() ? "" : " ") + std::string("Large enough for a GPU, if the data suffice.");
  add(keys, "train.batch_size", batch, std::move(reason));
}

std::string reason_of_precision(const Machine& machine) {
  if (machine.has_half_products)
    return fmt::format("This {} has instructions for bf16, which are faster.", machine.kind());
  return fmt::format("This {} has no instructions for bf16; with them{} bf16 is faster.", machine.kind(),
                     machine.is_gpu() ? "" : ", or on a GPU,");
}

// The schedule and the intervals of a course, and whether products are in half precision.
void add_course(Keys& keys, const Course& course, const char* schedule, std::int64_t warmup, std::int64_t evaluations,
                const Machine& machine) {
  const auto interval = std::max<std::int64_t>(1, course.steps / evaluations);
  add(keys, "train.schedule", {{"kind", schedule}, {"warmup_steps", warmup}, {"floor", 0}});
  add(keys, "train.precision", machine.has_half_products ? "bf16" : "fp32", reason_of_precision(machine));
  add(keys, "train.eval_interval", interval);
  add(keys, "train.checkpoint_interval", interval);
}

Json muon() { return {{"kind", "muon"}, {"momentum", 0.95}, {"weight_decay", 0.1}, {"iterations", 4}}; }
std::int64_t muon_warmup(const Course& course) { return std::clamp<std::int64_t>(course.steps / 50, 5, 100); }

std::int64_t next_multiple_of_8(double length) { return 8 * static_cast<std::int64_t>(std::ceil(length / 8)); }

// Texts.

struct TextSize {
  std::int64_t layers, heads, width, context, batch;
  double fewest;  // training tokens
  double rate;
};
constexpr std::array<TextSize, 6> text_sizes = {{{2, 4, 64, 64, 16, 0, 1e-2},
                                                 {4, 4, 128, 128, 16, 1e5, 1e-2},
                                                 {6, 4, 256, 256, 8, 5e5, 5e-3},
                                                 {8, 8, 512, 256, 16, 3e7, 3e-3},
                                                 {12, 12, 768, 512, 16, 3e8, 2e-3},
                                                 {24, 16, 1024, 1024, 16, 3e9, 1e-3}}};

// The tokenizer of a text, and an estimate of its tokens.
struct TextTokens {
  Json tokenizer;
  std::string reason;
  double tokens = 0;
  std::int64_t vocabulary = 0;
};

std::int64_t pieces_for(double bytes, const Machine& machine) {
  constexpr double bytes_of_piece = 1 << 17;  // of the logits in an evaluation, and a half more
  const std::int64_t pieces = bytes < 1e7 ? 2000 : bytes < 1e8 ? 4000 : bytes < 1e9 ? 8000 : 16000;
  const auto possible = part_of_memory * static_cast<double>(machine.memory) / bytes_of_piece;
  return std::min(pieces, std::max<std::int64_t>(1000, rounded(possible)));
}

// The characters, and as many pieces again.
std::int64_t with_characters(std::int64_t pieces, const CharacterStatistics& characters) {
  constexpr std::int64_t unit = 500, bytes = 256;
  const auto needed = characters.distinct() + bytes + unit;
  return std::max(pieces, (needed + unit - 1) / unit * unit);
}

TextTokens tokens_of(const TextLook& look, const Machine& machine) {
  constexpr double most_for_characters = 2e6, bytes_per_piece = 3.5;
  constexpr std::int64_t most_characters = 300;
  const auto size = human_bytes(static_cast<std::uint64_t>(look.bytes));
  const auto distinct = look.characters.distinct();
  if (!look.is_utf8) return {"byte", "The text is not UTF-8.", look.bytes, 256};
  if (look.bytes < most_for_characters && distinct <= most_characters)
    return {"character",
            fmt::format("{} distinct characters in {}: too little text for pieces of words.", distinct, size),
            look.all_characters, distinct};
  const auto pieces = with_characters(pieces_for(look.bytes, machine), look.characters);
  return {{{"kind", "bpe"}, {"vocabulary", pieces}, {"whitespace", "kept"}},
          look.bytes < most_for_characters ? fmt::format("{} distinct characters: pieces and bytes.", distinct)
                                           : fmt::format("Pieces of words, learned from {} of text.", size),
          look.bytes / bytes_per_piece,
          pieces};
}

double useful_epochs(double tokens) {
  if (tokens < 1e5) return 30;
  return tokens < 1e7 ? 10 : 4;  // more than four epochs of a large text add little (Muennighoff et al. 2023)
}

void add_text_data(Keys& keys, const TextLook& look, const TextTokens& tokens) {
  const auto& data = look.data;
  add(keys, "task.kind", "language_model");
  add_path(keys, data);
  add_format(keys, data.format);
  add_unless(keys, "data.text_field", data.text_field, TextDataConfig().text_field,
             "The member of the objects with the longest texts.");
  add_malformed(keys, data, "documents");
  add(keys, "data.tokenizer", tokens.tokenizer, tokens.reason);
}

Keys text_keys(const TextLook& look, const TextTokens& tokens, const TextSize& size, std::int64_t context,
               const Course& course, const Machine& machine) {
  constexpr double many_epochs = 3;
  Keys keys;
  add_text_data(keys, look, tokens);
  add(keys, "model.layers", size.layers,
      fmt::format("A size for {} training tokens and this {}.", human_count(tokens.tokens), machine.kind()));
  add(keys, "model.heads", size.heads);
  add(keys, "model.width", size.width);
  add(keys, "model.context", context);
  add(keys, "model.dropout",
      course.epochs > many_epochs ? 0.2
      : course.epochs > 1         ? 0.1
                                  : 0.0,
      course.epochs > 1 ? "Each token is seen several times." : "No token is seen twice.");
  add(keys, "model.mixer", {{"kind", "scaled_dot_product"}, {"qk_norm", true}},
      "Blocks as in LLaMA, with normalised queries and keys.");
  add(keys, "model.positions", "rotary");
  add(keys, "model.norm", "rms_norm");
  add(keys, "model.feed_forward", "gated");
  add(keys, "train.steps", course.steps, describe_course(course, "token"));
  add_batch(keys, size.batch, machine);
  add(keys, "train.optimizer", muon());
  add(keys, "train.learning_rate", size.rate);
  add_course(keys, course, "linear", muon_warmup(course), 10, machine);
  return keys;
}

// Tables.

struct TableSize {
  std::int64_t layers, heads, width, batch;
  double fewest;  // rows
};
constexpr std::array<TableSize, 2> table_sizes = {{{1, 2, 64, 32, 0}, {2, 4, 128, 32, 5e4}}};

// The tokenizer of a table, and the lengths of its texts in tokens.
struct TableTokens {
  Json tokenizer;
  std::string reason;
  double mean, percentile_95;
  std::int64_t vocabulary = 0;
};

TableTokens tokens_of(const TableLook& look) {
  constexpr double mostly = 0.5, much_text = 1e6, characters_per_piece = 1.5, few_rows = 200, many_rows = 2e4;
  const auto &words = look.lengths.words, &characters = look.lengths.characters;
  const auto distinct = look.characters.distinct();
  const auto as_real = [](std::int64_t length) { return static_cast<double>(length); };
  if (look.characters.fraction_without_spaces() > mostly && characters.mean * look.rows < much_text)
    return {"character", "These scripts have no spaces between words.", characters.mean,
            as_real(characters.percentile_95), distinct};
  if (look.characters.fraction_without_spaces() > mostly) {
    const auto pieces = with_characters(8000, look.characters);
    return {{{"kind", "unigram"}, {"vocabulary", pieces}},
            "These scripts have no spaces between words, so pieces are learned.",
            characters.mean / characters_per_piece,
            as_real(characters.percentile_95) / characters_per_piece,
            pieces};
  }
  const std::int64_t most = look.rows < many_rows ? 10'000 : 30'000;
  const bool is_small = look.rows < few_rows;
  const auto vocabulary = std::min(most, is_small ? look.words : look.repeated_words) + 1;
  return {{{"kind", "word"}, {"vocabulary", most}, {"min_count", is_small ? 1 : 2}},
          is_small ? "Few texts: also words that occur once." : "Words that occur twice or more.",
          words.mean,
          as_real(words.percentile_95),
          vocabulary};
}

void add_table_data(Keys& keys, const TableLook& look, const TableTokens& tokens) {
  const auto& data = look.data;
  const LabelledDataConfig usual;
  add_path(keys, data);
  add_format(keys, data.format);
  add_header(keys, data.header);
  add_unless(keys, "data.text_field", data.text_field, usual.text_field);
  add_unless(keys, "data.label_field", data.label_field, usual.label_field);
  if (look.rating) {
    add(keys, "data.rating",
        {{"positive_from", short_number(*look.rating->positive_from)},
         {"negative_to", short_number(*look.rating->negative_to)}},
        fmt::format("{} are ratings: two classes, without the ratings between them, are easier to learn.",
                    look.is_named_rating ? "The labels seem to be ratings. If they" : "If the labels"));
    keys.back().is_suggestion = true;
  }
  add_malformed(keys, data, "rows");
  add_fraction(keys, data, look.rows);
  add(keys, "data.tokenizer", tokens.tokenizer, tokens.reason);
}

// The task section of a classifier.
void add_classification(Keys& keys, const TableLook& look) {
  constexpr double few_held_out = 1000, unequal = 3;
  const auto most = look.classes.front().second, fewest = look.classes.back().second;
  add(keys, "task.kind", "classification");
  add(keys, "task.truncation", "head_and_tail");
  add(keys, "task.head", {{"kind", "per_token_mean"}, {"recalibrate", true}});
  add(keys, "task.bucketing", 50);
  add(keys, "task.label_smoothing", 0.1);
  add(keys, "task.token_removal", 0.15, "Noise, against overfitting.");
  add(keys, "task.token_unknown", 0.05);
  if (static_cast<double>(most) >= unequal * static_cast<double>(fewest))
    add(keys, "task.class_weights", "balanced",
        fmt::format("The largest class has {} rows, the smallest {}.", most, fewest));
  if (look.rows * look.data.validation_fraction < few_held_out)
    add(keys, "task.selection_metric", "loss", "The validation split is small, where accuracy is noisy.");
}

std::int64_t table_context(const TableTokens& tokens) {
  constexpr std::int64_t shortest = 16, longest = 512;
  return std::clamp(next_multiple_of_8(tokens.percentile_95), shortest, longest);
}

double table_epochs(double rows) {
  if (rows < 1e3) return 20;
  return rows < 1e4 ? 10 : rows < 5e4 ? 4 : 3;
}

Keys table_keys(const TableLook& look, const TableTokens& tokens, const TableSize& size, const Course& course,
                const Machine& machine) {
  Keys keys;
  add_classification(keys, look);
  add_table_data(keys, look, tokens);
  add(keys, "model.layers", size.layers, fmt::format("A size for {} rows.", human_count(look.rows)));
  add(keys, "model.heads", size.heads);
  add(keys, "model.width", size.width);
  add(keys, "model.context", table_context(tokens),
      fmt::format("95% of the texts have at most {:.0f} tokens; of longer ones the middle is left out.",
                  tokens.percentile_95));
  add(keys, "model.embedding", {{"std", 0.1}, {"dropout", 0.3}});
  add(keys, "model.mixer", {{"kind", "scaled_dot_product"}, {"qk_norm", true}});
  add(keys, "model.norm", {{"position", "pre"}, {"final", false}});
  add(keys, "model.feed_forward", {{"activation", "gelu"}, {"ratio", 2}});
  add(keys, "train.steps", course.steps, describe_course(course, "text"));
  add_batch(keys, size.batch, machine);
  add(keys, "train.optimizer",
      {{"kind", "adamw"}, {"betas", {0.9, 0.98}}, {"weight_decay", 0.05}, {"embedding_weight_decay", 0.3}});
  add(keys, "train.learning_rate", 2e-3);
  add_course(keys, course, "cosine", std::max<std::int64_t>(5, course.steps * 6 / 100), 10, machine);
  return keys;
}

// Pairs.

struct PairSize {
  std::int64_t layers, heads, width, pieces;
  std::int64_t batch;  // tokens of the longer side
  double fewest;       // pairs
  double rate, dropout;
};
constexpr std::array<PairSize, 5> pair_sizes = {{{2, 4, 128, 1000, 1024, 0, 5e-3, 0.2},
                                                 {3, 8, 256, 4000, 2048, 5e3, 5e-3, 0.1},
                                                 {4, 8, 384, 8000, 4096, 2e5, 4e-3, 0.1},
                                                 {6, 8, 512, 16000, 4096, 2e6, 3e-3, 0.1},
                                                 {6, 16, 1024, 32000, 4096, 2e7, 2e-3, 0.1}}};

// Lengths of the longer side in tokens, an estimate.
struct PairTokens {
  double mean = 0, longest = 0;
};

PairTokens tokens_of(const PairsLook& look) {
  constexpr double mostly = 0.5, characters_per_piece = 1.5, pieces_per_word = 1.4, shortest_pieces = 2, mark = 1;
  const bool has_spaces = look.characters.fraction_without_spaces() <= mostly;
  PairTokens tokens;
  for (const auto* side : {&look.source, &look.target}) {
    const auto longest = static_cast<double>(side->characters.percentile_99);
    tokens.mean = std::max(
        tokens.mean, has_spaces ? side->words.mean * pieces_per_word : side->characters.mean / characters_per_piece);
    tokens.longest = std::max(tokens.longest, mark + (has_spaces ? longest / shortest_pieces : longest));
  }
  return tokens;
}

std::int64_t pair_context(const PairTokens& tokens) {
  constexpr std::int64_t shortest = 16, longest = 512;
  return std::clamp(next_multiple_of_8(tokens.longest), shortest, longest);
}

double pair_epochs(double pairs) {
  if (pairs < 1e3) return 60;
  return pairs < 1e4 ? 20 : pairs < 1e5 ? 5 : 3;
}

void add_pair_data(Keys& keys, const PairsLook& look, const PairSize& size) {
  const auto& data = look.data;
  const ParallelDataConfig usual;
  add_path(keys, data);
  if (data.target_path) add(keys, "data.target_path", std::string(*data.target_path));
  add_format(keys, data.format);
  add_header(keys, data.header);
  add_unless(keys, "data.source_field", data.source_field, usual.source_field);
  add_unless(keys, "data.target_field", data.target_field, usual.target_field);
  add_malformed(keys, data, "rows");
  add_fraction(keys, data, look.pairs);
  add(keys, "data.tokenizer",
      {{"kind", "bpe"}, {"vocabulary", with_characters(size.pieces, look.characters)}, {"character_coverage", 1}},
      fmt::format("Pieces of words of both sides, which have {} distinct characters.", look.characters.distinct()));
}

Keys pair_keys(const PairsLook& look, const PairSize& size, std::int64_t context, const Course& course,
               const Machine& machine) {
  const Json attention = "scaled_dot_product";
  Keys keys;
  add(keys, "task.kind", "sequence_to_sequence");
  add(keys, "task.label_smoothing", 0.1);
  add(keys, "task.bucketing", 50);
  add(keys, "task.batch_unit", "token");
  add_pair_data(keys, look, size);
  add(keys, "model.kind", "encoder_decoder");
  add(keys, "model.layers", size.layers, fmt::format("A size for {} pairs.", human_count(look.pairs)));
  add(keys, "model.heads", size.heads);
  add(keys, "model.width", size.width);
  add(keys, "model.context", context,
      fmt::format(
          "99% of the sources have at most {} characters, of the targets {}. Pairs with longer targets are left out.",
          look.source.characters.percentile_99, look.target.characters.percentile_99));
  add(keys, "model.dropout", size.dropout);
  add(keys, "model.positions", "sinusoidal");
  add(keys, "model.feed_forward", Json::object({{"ratio", 2}}));
  add(keys, "model.mixer", attention);
  add(keys, "model.cross_mixer", attention);
  add(keys, "model.encoder", Json::object({{"mixer", attention}}));
  add(keys, "train.steps", course.steps, describe_course(course, "pair"));
  add_batch(keys, size.batch, machine, "Tokens of the longer side.");
  add(keys, "train.optimizer", muon());
  add(keys, "train.learning_rate", size.rate);
  add_course(keys, course, "linear", muon_warmup(course), 5, machine);
  return keys;
}

// Comments and YAML.

// Lines of at most `width` bytes, broken at spaces.
std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines = {""};
  for (std::string_view rest = text; !rest.empty();) {
    const auto end = std::min(rest.find(' '), rest.size());
    const auto word = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width) lines.emplace_back();
    (lines.back() += lines.back().empty() ? "" : " ") += word;
  }
  return lines;
}

std::string comment(const std::string& text, std::size_t indent) {
  constexpr std::size_t width = 118;
  std::string lines;
  for (const auto& line : wrapped(escaped(text), width - indent)) lines += fmt::format("{:{}}# {}\n", "", indent, line);
  return lines;
}

std::string section_of(const ChosenKey& key) { return key.key.substr(0, key.key.find('.')); }

}  // namespace

// Operations a second are about those of nanoGPT's step on an H200 (docs/results/gpu.md), and in proportion to the
// peaks of other GPUs.
Machine machine_of(const cuda::Device& gpu) {
  constexpr double without_bf16 = 2e12, ampere = 6e13, hopper = 1.5e14, of_workstations = 2e13;
  const double speed = gpu.major < 8                       ? without_bf16
                       : gpu.major == 9 || gpu.major == 10 ? hopper
                       : gpu.major == 8 && gpu.minor == 0  ? ampere
                                                           : of_workstations;
  return {.gpu = gpu.name, .memory = gpu.memory, .operations_per_second = speed, .has_half_products = gpu.major >= 8};
}

Machine machine_of(c10::Device device) {
  if (device.is_cuda()) return machine_of(cuda::find_devices().list.at(static_cast<std::size_t>(device.index())));
  // Operations a second of one thread: a little less than was measured for the shipped configs.
  constexpr double plain = 5e9, avx2 = 4e10, avx512 = 8e10, avx512_bf16 = 1.5e11;
  constexpr int most_slices = 8;  // of a batch, which threads compute
  const auto code = widest_vector_code();
  const double speed = code == VectorCode::avx512_bf16 ? avx512_bf16
                       : code == VectorCode::avx512    ? avx512
                       : code == VectorCode::avx2      ? avx2
                                                       : plain;
  const int threads = at::get_num_threads();
  return {.threads = threads,
          .memory = machine_memory(),
          .operations_per_second = speed * std::min(threads, most_slices),
          .has_half_products = code == VectorCode::avx512_bf16};
}

StartingConfig choose_config(const TextLook& look, const Machine& machine) {
  constexpr double fewest_tokens = 400, held_out = 0.1, windows = 4;  // of the validation split, at least
  const auto tokens = tokens_of(look, machine);
  if (tokens.tokens < fewest_tokens)
    fail_data("{}: {:.0f} tokens ({}) are too few: a language model needs {:.0f} or more", look.name, tokens.tokens,
              yaml_value(tokens.tokenizer), fewest_tokens);
  const auto longest = std::bit_floor(static_cast<std::uint64_t>(held_out * tokens.tokens / windows));
  const auto plan_of = [&](TextSize size) {
    const auto context = std::min(size.context, static_cast<std::int64_t>(longest));
    const auto length = static_cast<double>(context), training = (1 - held_out) * tokens.tokens;
    size.batch = batch_on(machine, size.batch, training / length, length);
    const auto step_tokens = static_cast<double>(size.batch) * length;
    const Amounts amounts{.epoch_steps = training / step_tokens,
                          .step_tokens = step_tokens,
                          .epochs = useful_epochs(training),
                          .fewest_steps = 200,
                          .most_steps = 20'000};
    return make_plan([&](const Course& course) { return text_keys(look, tokens, size, context, course, machine); },
                     amounts, {.vocabulary = tokens.vocabulary}, machine);
  };
  return choose_size(std::span<const TextSize>(text_sizes), tokens.tokens, plan_of);
}

StartingConfig choose_config(const TableLook& look, const Machine& machine) {
  constexpr double few_rows = 200, some_rows = 1000;
  const auto tokens = tokens_of(look);
  const auto plan_of = [&](TableSize size) {
    if (look.rows < some_rows) size.batch = std::min<std::int64_t>(size.batch, look.rows < few_rows ? 8 : 16);
    const auto rows = (1 - look.data.validation_fraction) * look.rows;
    const auto length = std::min(tokens.mean, static_cast<double>(table_context(tokens)));
    size.batch = batch_on(machine, size.batch, rows, length);
    const auto batch = static_cast<double>(size.batch);
    const Amounts amounts{.epoch_steps = rows / batch,
                          .step_tokens = batch * length,
                          .epochs = table_epochs(rows),
                          .fewest_steps = 200,
                          .most_steps = 20'000};
    return make_plan([&](const Course& course) { return table_keys(look, tokens, size, course, machine); }, amounts,
                     {.vocabulary = tokens.vocabulary, .classes = std::ssize(look.classes)}, machine);
  };
  return choose_size(std::span<const TableSize>(table_sizes), look.rows, plan_of);
}

StartingConfig choose_config(const PairsLook& look, const Machine& machine) {
  constexpr double both_sides = 2, fewest_batches = 8;  // of an epoch
  constexpr std::int64_t smallest_batch = 128;
  const auto tokens = tokens_of(look);
  const auto context = pair_context(tokens);
  const auto plan_of = [&](PairSize size) {
    const auto epoch = (1 - look.data.validation_fraction) * look.pairs * tokens.mean;  // in tokens
    const auto part = std::bit_floor(static_cast<std::uint64_t>(epoch / fewest_batches));
    size.batch = batch_on(machine, size.batch, epoch, 1);
    size.batch = std::max({smallest_batch, context, std::min(size.batch, static_cast<std::int64_t>(part))});
    const auto batch = static_cast<double>(size.batch);
    const Amounts amounts{.epoch_steps = epoch / batch,
                          .step_tokens = both_sides * std::min(batch, epoch),
                          .epochs = pair_epochs(look.pairs),
                          .fewest_steps = 200,
                          .most_steps = 20'000};
    return make_plan([&](const Course& course) { return pair_keys(look, size, context, course, machine); }, amounts,
                     {.vocabulary = with_characters(size.pieces, look.characters)}, machine);
  };
  return choose_size(std::span<const PairSize>(pair_sizes), look.pairs, plan_of);
}

std::string describe(const StartingConfig& config, const Machine& machine) {
  const auto trained_on =
      machine.is_gpu() ? machine.gpu : fmt::format("{} thread{}", machine.threads, machine.threads == 1 ? "" : "s");
  return fmt::format("about {} parameters, {} of memory (this {} has {}), {} of training on {}",
                     human_count(static_cast<double>(config.parameters)), human_bytes(config.memory),
                     machine.is_gpu() ? "GPU" : "machine", human_bytes(machine.memory),
                     human_duration(std::max(1.0, config.seconds())), trained_on);
}

std::string to_yaml(const StartingConfig& config, const std::vector<std::string>& head) {
  constexpr std::size_t indent = 2;
  std::string yaml, section;
  for (const auto& line : head) yaml += comment(line, 0);
  for (const auto& key : config.keys) {
    const auto own = section_of(key);
    const auto count = std::ranges::count(config.keys, own, section_of);
    const auto name = key.key.substr(own.size() + 1);
    const auto value = yaml_value(key.value);
    if (count == 1 && name == "kind") {  // short for a section with a kind
      yaml += fmt::format("{}: {}\n", own, value);
      continue;
    }
    if (std::exchange(section, own) != own) yaml += own + ":\n";
    if (!key.reason.empty()) yaml += comment(key.reason, indent);
    yaml += fmt::format("{:{}}{}{}: {}\n", "", indent, key.is_suggestion ? "# " : "", name, value);
  }
  return yaml;
}

}  // namespace metaformer
