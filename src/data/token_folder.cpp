#include "data/token_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/digest.h"
#include "base/download.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/utf8.h"
#include "config/experiment_config.h"
#include "config/writer.h"
#include "data/corpus.h"
#include "data/foreign_tokens.h"
#include "data/tables.h"
#include "data/text_source.h"
#include "data/tokenized_text.h"
#include "text/make_tokenizer.h"
#include "text/symbol_tokenizers.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr int manifest_version = 1;
constexpr const char *manifest_file = token_manifest, *unfinished_file = unfinished_tokens;
constexpr const char* tokenizer_file = "tokenizer.json";
constexpr const char* input_file = "standard_input";
constexpr std::array text_splits = {Split::train, Split::validation};
constexpr std::uintmax_t largest_manifest = std::uintmax_t{1} << 30;
constexpr std::size_t most_learned = std::size_t{256} << 20;  // bytes of text from which a tokenizer learns

// JSON with the digest of its content, so that a damaged file is found.
void write_checked(const fs::path& path, const char* name, const Json& content) {
  write_file_atomically(path, Json{{"sha256", sha256(content.dump())}, {name, content}}.dump() + "\n");
}

Json read_checked(const fs::path& path, const char* name) {
  const auto json = parse_json<Json>(read_file(path, largest_manifest, ExitCode::data), INT64_MAX);
  const bool is_intact =
      json.is_object() && json.contains(name) && json.contains("sha256") && json["sha256"] == sha256(json[name].dump());
  if (!is_intact) fail_data("{}: cut off or damaged; prepare the tokens again", path.string());
  return json[name];
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The keys of the data section on which tokens depend.
Json options_of(const TextDataConfig& config, std::int64_t shard_tokens, const Tokenizer* tokenizer) {
  LanguageModelConfig task;
  task.data = config;
  auto options = config_to_json({.task = task}).at("data");
  for (const auto* unrelated : {"corpus", "path", "cache", "packing", "separate_documents"}) options.erase(unrelated);
  if (tokenizer != nullptr) options["tokenizer"] = sha256(tokenizer->to_json().dump());
  options["shard_tokens"] = shard_tokens;
  return options;
}

// Files with size and time of change, by which a later start recognises them.
Json describe_files(const std::vector<fs::path>& paths, const TextDataConfig& config) {
  auto files = Json::array();
  for (const auto& path : list_text_files(paths, config)) {
    std::error_code error;
    const auto size = fs::file_size(path, error);
    const auto changed = fs::last_write_time(path, error);
    if (error) fail_data("{}: cannot be read: {}", path.string(), error.message());
    files.push_back({{"path", path.string()}, {"bytes", size}, {"changed", changed.time_since_epoch().count()}});
  }
  return files;
}

class Progress {
 public:
  Progress(const char* action, std::int64_t all) : action_(action), all_(all) {}

  void show(std::int64_t done) {
    if (first_ < 0) first_ = done;
    if (!timer_.is_due()) return;
    timer_.restart();
    const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const auto rate = static_cast<double>(done - first_) / std::max(seconds, 1e-3);
    auto line = fmt::format("{} {}", action_, human_bytes(static_cast<std::uint64_t>(done)));
    if (all_ > 0)
      line += fmt::format(" of {} ({:.0f}%)", human_bytes(static_cast<std::uint64_t>(all_)),
                          100 * static_cast<double>(done) / static_cast<double>(all_));
    line += fmt::format(", {:.1f} MB/s", rate / 1e6);
    if (all_ > 0 && rate > 0) line += fmt::format(", {} left", human_duration(static_cast<double>(all_ - done) / rate));
    show_progress(line);
  }

 private:
  const char* action_;
  std::int64_t all_, first_ = -1;
  LineTimer timer_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// What the first reading of a text finds out.
struct TextScan {
  TextSummary summary;
  std::int64_t bytes = 0, characters = 0;
  std::string beginning;          // for a tokenizer to learn from
  std::vector<bool> code_points;  // those that occur; only for a tokenizer of characters
};

TextScan scan_text(const std::vector<fs::path>& paths, const TextDataConfig& config, bool learns) {
  TextScan scan;
  const bool by_characters = is<CharacterTokenizerOptions>(config.tokenizer);
  const bool by_pieces = learns && !by_characters && !is<ByteTokenizerOptions>(config.tokenizer) &&
                         !is<PretrainedTokenizerOptions>(config.tokenizer);
  if (learns && by_characters) scan.code_points.resize(0x110000);
  Progress progress("reading", 0);
  scan.summary = read_texts(paths, config, [&](std::string_view piece, bool) {
    scan.bytes += std::ssize(piece);
    scan.characters += count_characters(piece);
    if (by_pieces) scan.beginning += piece.substr(0, most_learned - scan.beginning.size());
    if (!scan.code_points.empty())
      for (auto at = piece.begin(); at != piece.end();) scan.code_points[utf8::unchecked::next(at)] = true;
    progress.show(scan.bytes);
  });
  return scan;
}

std::vector<std::string> characters_of(const std::vector<bool>& code_points) {
  std::vector<std::string> characters;
  for (std::uint32_t point = 0; point < code_points.size(); ++point)
    if (code_points[point]) characters.push_back(to_utf8(point));
  return characters;
}

// A split of a folder as its manifest describes it.
struct SplitFiles {
  Json shards = Json::array();
  TextStatistics statistics;
};

fs::path shard_path(const fs::path& folder, Split split, std::size_t number, const char* ending) {
  return folder / fmt::format("{}-{:05}.{}", to_string(split), number, ending);
}

// Writes the tokens of a split into shards.
class ShardWriter {
 public:
  // `has_ended`: called after every shard.
  ShardWriter(fs::path folder, Split split, int width, std::int64_t shard_tokens, bool has_bytes, SplitFiles& files,
              std::function<void(std::int64_t bytes)> has_ended)
      : folder_(std::move(folder)),
        split_(split),
        width_(width),
        shard_tokens_(shard_tokens),
        has_bytes_(has_bytes),
        files_(files),
        has_ended_(std::move(has_ended)) {}

  void add(const EncodedChunk& chunk) {
    const auto number = files_.shards.size();
    if (!tokens_) {
      tokens_.emplace(shard_path(folder_, split_, number, "tokens"), width_);
      if (has_bytes_) bytes_.emplace(shard_path(folder_, split_, number, "bytes"), 2);
    }
    for (const auto start : chunk.document_starts) documents_.push_back(files_.statistics.tokens() + start);
    tokens_->add(chunk.ids);
    if (bytes_) bytes_->add(chunk.token_bytes);
    files_.statistics.add(chunk);
    if (tokens_->size() >= shard_tokens_) finish();
  }

  void finish() {
    if (!tokens_) return;
    const auto number = files_.shards.size();
    const std::string_view starts(reinterpret_cast<const char*>(documents_.data()),
                                  documents_.size() * sizeof documents_[0]);
    Json shard = {{"tokens", tokens_->size()}, {"documents", documents_.size()}};
    shard["sha256"] = tokens_->finish();
    if (bytes_) shard["bytes_sha256"] = bytes_->finish();
    write_file_atomically(shard_path(folder_, split_, number, "documents"), starts);
    shard["documents_sha256"] = sha256(starts);
    files_.shards.push_back(std::move(shard));
    tokens_.reset();
    bytes_.reset();
    documents_.clear();
    has_ended_(files_.statistics.bytes());
    fault_point("shard");
  }

 private:
  fs::path folder_;
  Split split_;
  int width_;
  std::int64_t shard_tokens_;
  bool has_bytes_;
  SplitFiles& files_;
  std::function<void(std::int64_t)> has_ended_;
  std::optional<TokenFileWriter> tokens_, bytes_;
  std::vector<std::int64_t> documents_;
};

class Preparation {
 public:
  explicit Preparation(PrepareOptions options) : options_(std::move(options)) {}

  void run() {
    for (const auto& path : options_.corpora)  // before a folder is made
      if (path != "-" && !is_there(path)) fail_data("{}: no such file or folder", path.string());
    make_folder();
    const FileLock lock(options_.out / "lock", options_.when_held);
    remove_remains();
    description_["options"] = options_of(options_.config, options_.shard_tokens, options_.tokenizer.get());
    const bool from_input = std::ranges::find(options_.corpora, "-") != options_.corpora.end();
    auto paths = options_.corpora;
    if (options_.config.validation_path) paths.emplace_back(*options_.config.validation_path);
    if (!from_input) description_["files"] = describe_files(paths, options_.config);
    if (is_complete(from_input)) return log::info("{}: is complete", options_.out.string());
    if (from_input) take_standard_input();
    if (!resume()) begin();
    encode_all();
    finish();
  }

 private:
  fs::path file(const char* name) const { return options_.out / name; }

  void make_folder() const {
    std::error_code error;
    fs::create_directories(options_.out, error);
    if (error)
      throw Error(code_of_errno(error.value(), ExitCode::usage),
                  fmt::format("cannot make {}: {}", options_.out.string(), error.message()));
    if (is_token_folder(options_.out) || is_there(file(input_file))) return;
    for (const auto& entry : fs::directory_iterator(options_.out))
      if (entry.path().filename() != "lock" && target_of_temporary(entry.path().filename().string()).empty() &&
          entry.path().filename() != "standard_input.unfinished")
        fail_usage(
            "{}: holds {}, which is no file of prepared tokens; name an empty folder, or one that does not exist",
            options_.out.string(), entry.path().filename().string());
  }

  // Removes files that a process left when it was killed.
  void remove_remains() const {
    for (const auto& entry : fs::directory_iterator(options_.out)) {
      const auto name = entry.path().filename().string();
      std::error_code ignored;
      if (name.ends_with(".unfinished") || !target_of_temporary(name).empty()) fs::remove(entry.path(), ignored);
    }
  }

  // Stores what comes from standard input, because it is read twice.
  void take_standard_input() {
    for (auto& path : options_.corpora) {
      if (path != "-") continue;
      path = file(input_file);
      if (is_there(path)) continue;
      auto unfinished = path;
      unfinished += ".unfinished";
      const OpenFile output(unfinished, open_own_file(unfinished, O_TRUNC));
      std::string piece(std::size_t{1} << 20, '\0');
      Progress progress("storing standard input:", 0);
      for (std::int64_t all = 0;;) {
        throw_if_stopped();
        const auto count = ::read(STDIN_FILENO, piece.data(), piece.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail_data("standard input: cannot be read: {}", std::strerror(errno));
        if (count == 0) break;
        output.write(std::string_view(piece).substr(0, static_cast<std::size_t>(count)));
        progress.show(all += count);
      }
      output.sync();
      fs::rename(unfinished, path);
    }
  }

  // The content of standard input is not compared.
  bool is_complete(bool from_input) const {
    if (!is_there(file(manifest_file))) return false;
    const auto manifest = read_checked(file(manifest_file), "manifest");
    if (manifest.at("options") != description_.at("options") ||
        (!from_input && manifest.at("files") != description_.at("files")))
      fail_usage("{}: holds tokens of other files or options; name another folder, or remove it",
                 options_.out.string());
    return true;
  }

  // Continues an unfinished preparation, if there is one.
  bool resume() {
    if (!is_there(file(unfinished_file))) return false;
    auto state = read_checked(file(unfinished_file), "unfinished");
    if (state.at("description") != description_)
      fail_usage("{}: holds an unfinished preparation of other files or options; remove it, or give the same command",
                 options_.out.string());
    if (!is_there(file(tokenizer_file))) return false;  // it is written after the plan
    const auto tokenizer = read_file(file(tokenizer_file), largest_manifest, ExitCode::data);
    if (sha256(tokenizer) != state.at("plan").at("tokenizer")) return false;
    plan_ = state.at("plan");
    tokenizer_ = load_tokenizer(tokenizer, file(tokenizer_file).string());
    done_bytes_ = state.at("done_bytes");
    for (const auto& split : state.at("splits")) {
      auto statistics = TextStatistics::from_json(nlohmann::json(split.at("statistics")));
      if (!statistics) fail_data("{}: damaged", file(unfinished_file).string());
      splits_.push_back({.shards = split.at("shards"), .statistics = std::move(*statistics)});
    }
    log::info("continuing after {} of {}", human_bytes(static_cast<std::uint64_t>(done_bytes_)),
              human_bytes(plan_.at("bytes").get<std::uint64_t>()));
    return true;
  }

  // Reads the texts once: counts them, and makes the tokenizer.
  void begin() {
    const auto& config = options_.config;
    const bool learns = options_.tokenizer == nullptr;
    auto scan = scan_text(options_.corpora, config, learns);
    std::optional<TextScan> held_out;
    if (config.validation_path) held_out = scan_text({fs::path(*config.validation_path)}, config, learns);
    const auto cut =
        held_out ? scan.characters
                 : static_cast<std::int64_t>(static_cast<double>(scan.characters) * (1 - config.validation_fraction));
    check_keys(scan.summary, held_out ? &held_out->summary : nullptr);
    tokenizer_ = options_.tokenizer ? options_.tokenizer : make_tokenizer_of(scan, held_out, cut);
    auto source = scan.summary.description;
    if (source.value("path", "") == file(input_file)) source["path"] = "-";
    if (held_out) source["validation"] = held_out->summary.description;
    const auto tokenizer = tokenizer_->to_json().dump() + "\n";
    plan_ = {{"bytes", scan.bytes + (held_out ? held_out->bytes : 0)},
             {"train_characters", cut},
             {"tokenizer", sha256(tokenizer)},
             {"source", std::move(source)}};
    for ([[maybe_unused]] const auto split : text_splits)
      splits_.push_back({.statistics = TextStatistics(tokenizer_->vocabulary_size())});
    save();
    write_file_atomically(file(tokenizer_file), tokenizer);
  }

  void check_keys(const TextSummary& text, const TextSummary* held_out) const {
    const bool has_json_lines = text.has_json_lines || (held_out != nullptr && held_out->has_json_lines);
    const TextDataConfig usual;
    const auto refuse_if = [&](bool is_void, const char* key) {
      if (is_void)
        fail_usage(
            "{}: has no effect on plain text; JSON lines are files named .jsonl, .json or .ndjson, or "
            "any with data.format jsonl",
            key);
    };
    refuse_if(!has_json_lines && options_.config.text_field != usual.text_field, "data.text_field");
    refuse_if(!has_json_lines && options_.config.malformed_limit != usual.malformed_limit, "data.malformed_limit");
  }

  std::shared_ptr<const Tokenizer> make_tokenizer_of(const TextScan& scan, const std::optional<TextScan>& held_out,
                                                     std::int64_t cut) const {
    if (is<CharacterTokenizerOptions>(options_.config.tokenizer)) {
      auto code_points = scan.code_points;
      for (std::size_t i = 0; held_out && i < code_points.size(); ++i)
        if (held_out->code_points[i]) code_points[i] = true;
      return std::make_shared<CharacterTokenizer>(characters_of(code_points), "text");
    }
    auto text = std::string_view(scan.beginning).substr(0, byte_offset(scan.beginning, cut));
    if (text.size() == most_learned)  // it may end inside a character
      while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0x80) != 0) text.remove_suffix(1);
    return obtain_tokenizer(options_.config, text, Unknown::refuse);
  }

  void save() const {
    Json splits = Json::array();
    for (const auto& split : splits_)
      splits.push_back({{"shards", split.shards}, {"statistics", split.statistics.to_json()}});
    write_checked(
        file(unfinished_file), "unfinished",
        {{"description", description_}, {"plan", plan_}, {"done_bytes", done_bytes_}, {"splits", std::move(splits)}});
  }

  int width() const { return tokenizer_->vocabulary_size() <= 1 << 16 ? 2 : 4; }

  // The writer of a split, and the encoder in front of it.
  struct SplitOutput {
    ShardWriter shards;
    TextEncoder encoder;

    SplitOutput(Preparation& own, Split split, std::int64_t bytes_before)
        : shards(own.options_.out, split, own.width(), own.options_.shard_tokens, !own.tokenizer_->restores_text(),
                 own.splits_[static_cast<std::size_t>(split)],
                 [&own, bytes_before](std::int64_t bytes) {
                   own.done_bytes_ = bytes_before + bytes;
                   own.save();
                 }),
          encoder(*own.tokenizer_, own.options_.threads, [this](EncodedChunk&& chunk) { shards.add(chunk); }) {}

    void finish() {
      encoder.finish();
      shards.finish();
    }
  };

  void encode_all() {
    Progress progress("encoding", plan_.at("bytes"));
    const auto cut = plan_.at("train_characters").get<std::int64_t>();
    const auto begun = done_bytes_;
    std::int64_t read = 0;
    std::optional<SplitOutput> output;
    output.emplace(*this, Split::train, 0);
    const auto add = [&](std::string_view piece, bool starts_document) {
      const auto skipped = std::clamp<std::int64_t>(begun - read, 0, std::ssize(piece));
      output->encoder.add(piece.substr(static_cast<std::size_t>(skipped)), starts_document && skipped == 0);
      read += std::ssize(piece);
      progress.show(read);
    };
    const auto begin_validation = [&] {
      output->finish();
      output.emplace(*this, Split::validation, read);
    };
    const auto& held_out = options_.config.validation_path;
    std::int64_t characters = 0;
    read_texts(options_.corpora, options_.config, [&](std::string_view piece, bool starts_document) {
      const auto before = characters;
      characters += count_characters(piece);
      if (held_out || characters <= cut || before > cut) return add(piece, starts_document);
      const auto training = piece.substr(0, byte_offset(piece, cut - before));  // perhaps ""
      add(training, starts_document);
      begin_validation();
      add(piece.substr(training.size()), true);  // a document that the cut divides is one in each part
    });
    if (held_out) {
      begin_validation();
      read_texts({fs::path(*held_out)}, options_.config, add);
    }
    output->finish();
    if (read != plan_.at("bytes").get<std::int64_t>())
      fail_data("{}: changed while it was read", options_.corpora.front().string());
  }

  void finish() {
    Json splits;
    for (const auto split : text_splits) {
      const auto& of_split = splits_[static_cast<std::size_t>(split)];
      splits[std::string(to_string(split))] = {{"shards", of_split.shards},
                                               {"statistics", of_split.statistics.to_json()}};
    }
    Json manifest = {{"version", manifest_version},
                     {"source", plan_.at("source")},
                     {"options", description_.at("options")},
                     {"files", description_.value("files", Json::array())},
                     {"drops_whitespace", drops_whitespace(options_.config.tokenizer)},
                     {"width", width()},
                     {"has_bytes", !tokenizer_->restores_text()},
                     {"tokenizer", plan_.at("tokenizer")},
                     {"splits", std::move(splits)}};
    write_checked(file(manifest_file), "manifest", manifest);
    std::error_code ignored;
    for (const auto* name : {unfinished_file, input_file}) fs::remove(file(name), ignored);
    const auto &train = splits_[0].statistics, &validation = splits_[1].statistics;
    log::info("{}: {} + {} tokens in {} + {} documents, vocabulary of {} tokens", options_.out.string(), train.tokens(),
              validation.tokens(), train.documents(), validation.documents(), tokenizer_->vocabulary_size());
  }

  PrepareOptions options_;
  Json description_, plan_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<SplitFiles> splits_;  // by Split
  std::int64_t done_bytes_ = 0;     // of the text, in finished shards
};

std::string read_documents(const fs::path& path, const Json& shard) {
  auto bytes = read_file(path, largest_text_file, ExitCode::data);
  if (sha256(bytes) != shard.at("documents_sha256")) fail_data("{}: damaged; prepare the tokens again", path.string());
  return bytes;
}

TokenizedSplit open_split(const fs::path& folder, Split split, const Json& manifest, std::int64_t vocabulary,
                          bool with_documents) {
  TokenizedSplit opened;
  const auto& files = manifest.at("splits").at(std::string(to_string(split)));
  std::vector<std::shared_ptr<const MappedEntries>> tokens, bytes;
  for (std::size_t number = 0; const auto& shard : files.at("shards")) {
    const auto path = [&](const char* ending) { return shard_path(folder, split, number, ending); };
    const auto count = shard.at("tokens").get<std::int64_t>();
    tokens.push_back(open_token_file(path("tokens"), count, manifest.at("width"), vocabulary - 1));
    if (manifest.at("has_bytes") == true) bytes.push_back(open_token_file(path("bytes"), count, 2, UINT16_MAX));
    if (with_documents) {
      const auto starts = read_documents(path("documents"), shard);
      const auto before = opened.document_starts.size();
      opened.document_starts.resize(before + starts.size() / sizeof(std::int64_t));
      std::memcpy(opened.document_starts.data() + before, starts.data(), starts.size());
    }
    ++number;
  }
  opened.tokens = TokenArray(std::move(tokens));
  opened.token_bytes = TokenArray(std::move(bytes));
  opened.statistics = TextStatistics::from_json(nlohmann::json(files.at("statistics")));
  if (!opened.statistics || opened.statistics->vocabulary() != vocabulary)
    fail_data("{}: its statistics are not those of its tokens", (folder / manifest_file).string());
  return opened;
}

Json read_manifest(const fs::path& folder) {
  std::error_code ignored;
  if (!is_token_folder(folder))
    fail_data("{}: {}", folder.string(),
              fs::is_directory(folder, ignored) ? "no folder of tokens that `metaformer data prepare` has written"
                                                : "no such folder");
  if (!is_there(folder / manifest_file))
    fail_data("{}: its preparation is not finished; `metaformer data prepare` with the same arguments continues it",
              folder.string());
  auto manifest = read_checked(folder / manifest_file, "manifest");
  if (manifest.value("version", 0) != manifest_version)
    fail_data("{}: was written by another version of this program; prepare the tokens again",
              (folder / manifest_file).string());
  return manifest;
}

// Refuses keys that have no effect on tokens.
void refuse_void_keys(const TextDataConfig& config, bool has_validation, bool has_tokenizer) {
  const TextDataConfig usual;
  const auto refuse_if = [&](bool is_void, const char* key, const char* advice = "") {
    if (is_void)
      fail_usage("{}: has no effect on {}, which has tokens already: leave it out{}", key, *config.path, advice);
  };
  refuse_if(config.text_field != usual.text_field, "data.text_field");
  refuse_if(config.malformed_limit != usual.malformed_limit, "data.malformed_limit");
  refuse_if(config.format != usual.format, "data.format");
  refuse_if(has_validation && config.validation_path, "data.validation_path");
  refuse_if(has_validation && config.validation_fraction != usual.validation_fraction, "data.validation_fraction");
  refuse_if(has_tokenizer && kind_of(config.tokenizer) != kind_of(usual.tokenizer), "data.tokenizer",
            ", or set it to character, the default");
}

bool needs_documents(const TextDataConfig& config) {
  return config.separate_documents || packing_options(config.packing) != nullptr;
}

void require_same(const Tokenizer& own, const Tokenizer* expected, const std::string& what) {
  if (expected != nullptr && own.to_json() != expected->to_json())
    fail_data("{}: its tokens are of another tokenizer ({}, vocabulary {}) than the checkpoint's ({}, vocabulary {})",
              what, own.to_json().at("kind").get<std::string>(), own.vocabulary_size(),
              expected->to_json().at("kind").get<std::string>(), expected->vocabulary_size());
}

std::vector<fs::path> text_paths(const TextDataConfig& config) {
  std::vector<fs::path> paths = {fs::path(*config.path)};
  if (config.validation_path) paths.emplace_back(*config.validation_path);
  return paths;
}

// The folders of data.mixture, one after another.
TokenizedText open_mixture(const TextDataConfig& config, const Tokenizer* tokenizer) {
  std::optional<TokenizedText> all;
  auto corpora = Json::array();
  for (const auto& entry : config.mixture) {
    const auto [path, weight] = parse_named_number(entry).value();
    auto text = open_token_folder(path, needs_documents(config));
    require_same(*text.tokenizer, tokenizer, path);
    corpora.push_back(text.description);
    corpora.back()["weight"] = weight;
    const auto training = text.splits[0].tokens.size();
    if (!all) {
      all = std::move(text);
      all->mixture.push_back({.tokens = training, .weight = weight});
      continue;
    }
    if (text.tokenizer->to_json() != all->tokenizer->to_json())
      fail_data("{}: its tokens are of another tokenizer than those of {}; a mixture needs one tokenizer", path,
                all->path.string());
    all->mixture.push_back({.first = all->splits[0].tokens.size(), .tokens = training, .weight = weight});
    for (std::size_t i = 0; i < all->splits.size(); ++i) {
      auto &split = all->splits[i], &own = text.splits[i];
      for (const auto start : own.document_starts) split.document_starts.push_back(split.tokens.size() + start);
      split.tokens.append(own.tokens);
      split.token_bytes.append(own.token_bytes);
      split.statistics->add(*own.statistics);
    }
  }
  std::string digests;
  for (const auto& corpus : corpora) digests += corpus.at("sha256").get<std::string>();
  all->description = {{"path", all->path.string()}, {"sha256", sha256(digests)}, {"mixture", std::move(corpora)}};
  return std::move(*all);
}

std::uintmax_t estimate_bytes(const TextDataConfig& config) {
  return estimate_unpacked_bytes(list_text_files(text_paths(config), config));
}

// A large text as a folder of tokens in the cache; nothing without a cache.
std::optional<TokenizedText> load_through_cache(const TextDataConfig& config,
                                                const std::shared_ptr<const Tokenizer>& tokenizer) {
  const auto cache = config.cache ? cache_folder() : std::nullopt;
  if (!cache) return std::nullopt;
  PrepareOptions options{.corpora = {fs::path(*config.path)},
                         .config = config,
                         .out = {},
                         .tokenizer = tokenizer,
                         .threads = encoding_threads(),
                         .when_held = WhenHeld::wait};
  const Json key = {options_of(config, options.shard_tokens, tokenizer.get()),
                    describe_files(text_paths(config), config)};
  options.out = *cache / "texts" / sha256(key.dump());
  if (!is_there(options.out / manifest_file)) {
    log::info("{}: about {}; its tokens are kept in {}", *config.path, human_bytes(estimate_bytes(config)),
              options.out.string());
    prepare_tokens(options);
  }
  auto text = open_token_folder(options.out, needs_documents(config));
  text.path = *config.path;
  auto source = text.description.at("source");
  text.description = std::move(source);
  return text;
}

}  // namespace

void prepare_tokens(const PrepareOptions& options) {
  try {
    Preparation(options).run();
  } catch (const nlohmann::json::exception& error) {
    fail_data("{}: damaged, or of another version of this program: {}", options.out.string(), error.what());
  } catch (const Interrupted&) {
    log::info("{}: not finished; the same command continues", options.out.string());
    throw;
  }
}

TokenizedText open_token_folder(const fs::path& folder, bool with_documents) try {
  const auto manifest = read_manifest(folder);
  const auto path = folder / tokenizer_file;
  const auto tokenizer = read_file(path, largest_manifest, ExitCode::data);
  if (sha256(tokenizer) != manifest.at("tokenizer"))
    fail_data("{}: damaged, or not the tokenizer of these tokens; prepare them again", path.string());
  TokenizedText text{.path = folder,
                     .description = {{"path", folder.string()},
                                     {"sha256", sha256(manifest.at("splits").dump())},
                                     {"source", manifest.at("source")}},
                     .tokenizer = load_tokenizer(tokenizer, path.string()),
                     .drops_whitespace = manifest.at("drops_whitespace"),
                     .splits = {}};
  for (const auto split : text_splits)
    text.splits[static_cast<std::size_t>(split)] =
        open_split(folder, split, manifest, text.tokenizer->vocabulary_size(), with_documents);
  return text;
} catch (const nlohmann::json::exception& error) {
  fail_data("{}: not a manifest of prepared tokens: {}", (folder / manifest_file).string(), error.what());
}

void verify_token_folder(const fs::path& folder) {
  const auto text = open_token_folder(folder, /*with_documents=*/true);
  const auto manifest = read_manifest(folder);
  const auto check = [&](const fs::path& path, const Json& expected) {
    throw_if_stopped();
    const MappedFile file(path);
    file.prefetch(0, file.bytes().size());
    if (sha256(file.bytes()) != expected) fail_data("{}: damaged; prepare the tokens again", path.string());
  };
  for (const auto split : text_splits)
    for (std::size_t number = 0;
         const auto& shard : manifest.at("splits").at(std::string(to_string(split))).at("shards")) {
      check(shard_path(folder, split, number, "tokens"), shard.at("sha256"));
      if (shard.contains("bytes_sha256")) check(shard_path(folder, split, number, "bytes"), shard.at("bytes_sha256"));
      ++number;
    }
}

bool has_tokens(const TextDataConfig& config) {
  return !config.mixture.empty() || (config.path && (is_token_folder(*config.path) || is_foreign_tokens(*config.path)));
}

bool is_large(const TextDataConfig& config, std::uintmax_t most) {
  return config.path && estimate_bytes(config) > most;
}

TokenizedText load_text(const TextDataConfig& config, bool offline, std::shared_ptr<const Tokenizer> tokenizer,
                        std::uintmax_t largest_in_memory) {
  if (!config.mixture.empty()) return open_mixture(config, tokenizer.get());
  if (has_tokens(config)) {
    const fs::path path(*config.path);
    const bool is_own = is_token_folder(path);
    // A given tokenizer, such as that of initial weights, may stand in the config: it is compared with the tokens' own.
    refuse_void_keys(config, is_own || has_foreign_validation(path), tokenizer == nullptr && has_own_tokenizer(path));
    if (!is_own) return open_foreign_tokens(config, std::move(tokenizer));
    auto text = open_token_folder(path, needs_documents(config));
    require_same(*text.tokenizer, tokenizer.get(), path.string());
    return text;
  }
  if (is_large(config, largest_in_memory))
    if (auto text = load_through_cache(config, tokenizer)) return std::move(*text);
  return encode_corpus(load_corpus(config, offline), config, std::move(tokenizer));
}

}  // namespace metaformer
