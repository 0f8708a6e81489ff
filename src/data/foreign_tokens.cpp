#include "data/foreign_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "text/make_tokenizer.h"
#include "text/symbol_tokenizers.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

template <class Number>
Number number_at(std::string_view bytes, std::size_t place, const fs::path& path) {
  if (place + sizeof(Number) > bytes.size()) fail_data("{}: cut off: byte {} is missing", path.string(), place);
  Number number;
  std::memcpy(&number, bytes.data() + place, sizeof number);
  return number;
}

// The tokens of a split: files one after another, and the documents in them, if they are known.
struct ForeignSplit {
  std::vector<std::shared_ptr<const MappedEntries>> files;
  std::optional<std::vector<std::int64_t>> documents;
};

// A file of nanoGPT, without a header, or of llm.c.
std::shared_ptr<const MappedEntries> open_bin(const fs::path& path, std::int64_t most) {
  struct Kind {
    std::int32_t magic, version;
    int width;
  };
  constexpr std::array kinds = {Kind{20240520, 1, 2}, Kind{20240801, 7, 4}};
  constexpr std::size_t header_bytes = 256 * sizeof(std::int32_t);
  auto file = std::make_shared<const MappedFile>(path);
  const auto size = file->bytes().size();
  if (size >= header_bytes) {
    const auto field = [&](std::size_t i) { return number_at<std::int32_t>(file->bytes(), 4 * i, path); };
    for (const auto& kind : kinds) {
      if (field(0) != kind.magic) continue;
      if (field(1) != kind.version)
        fail_data("{}: its header has version {}; expected {}", path.string(), field(1), kind.version);
      const std::int64_t count = field(2);
      if (size != header_bytes + static_cast<std::size_t>(count * kind.width))
        fail_data("{}: has {} bytes; {} tokens take {}: it is cut off or damaged", path.string(), size, count,
                  header_bytes + static_cast<std::size_t>(count * kind.width));
      return std::make_shared<const MappedEntries>(std::move(file), header_bytes, count, kind.width, most);
    }
  }
  if (size == 0 || size % 2 != 0)
    fail_data("{}: has {} bytes, no whole number of ids of 2 bytes: it is cut off, or not a file of tokens",
              path.string(), size);
  return std::make_shared<const MappedEntries>(std::move(file), 0, static_cast<std::int64_t>(size / 2), 2, most);
}

// The files of Megatron-LM's IndexedDataset.
ForeignSplit open_megatron(const fs::path& bin, std::int64_t most) {
  auto idx = bin;
  idx.replace_extension(".idx");
  const MappedFile index(idx);
  const auto bytes = index.bytes();
  constexpr std::string_view magic("MMIDIDX\0\0", 9);
  if (!bytes.starts_with(magic)) fail_data("{}: not an index of Megatron-LM", idx.string());
  if (const auto version = number_at<std::uint64_t>(bytes, 9, idx); version != 1)
    fail_data("{}: has version {}; expected 1", idx.string(), version);
  const auto kind = number_at<std::uint8_t>(bytes, 17, idx);
  const std::map<int, int> widths = {{1, 1}, {4, 4}, {8, 2}};  // uint8, int32, uint16
  if (!widths.contains(kind))
    fail_data("{}: its ids have the type {}; expected 1 (uint8), 4 (int32) or 8 (uint16)", idx.string(), kind);
  const auto width = widths.at(kind);
  const auto sequences = number_at<std::uint64_t>(bytes, 18, idx), documents = number_at<std::uint64_t>(bytes, 26, idx);
  constexpr std::size_t lengths_at = 34;
  const auto most_entries = bytes.size() / sizeof(std::int32_t);
  if (sequences > most_entries || documents > most_entries ||
      bytes.size() != lengths_at + sequences * 12 + documents * 8)
    fail_data("{}: cut off or damaged", idx.string());
  const auto pointers_at = lengths_at + sequences * 4, documents_at = pointers_at + sequences * 8;
  std::vector<std::int64_t> starts;  // of sequences, then the end
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < sequences; ++i) {
    starts.push_back(tokens);
    const auto length = number_at<std::int32_t>(bytes, lengths_at + 4 * i, idx);
    if (length < 0 || number_at<std::int64_t>(bytes, pointers_at + 8 * i, idx) != tokens * width)
      fail_data("{}: sequence {} does not follow the one before it in {}", idx.string(), i, bin.string());
    tokens += length;
  }
  starts.push_back(tokens);
  ForeignSplit split;
  split.documents.emplace();
  for (std::size_t i = 0; i + 1 < documents; ++i) {  // the last is the end
    const auto sequence = number_at<std::int64_t>(bytes, documents_at + 8 * i, idx);
    if (sequence < 0 || static_cast<std::size_t>(sequence) > sequences)
      fail_data("{}: document {} begins at sequence {} of {}", idx.string(), i, sequence, sequences);
    split.documents->push_back(starts[static_cast<std::size_t>(sequence)]);
  }
  auto file = std::make_shared<const MappedFile>(bin);
  if (file->bytes().size() != static_cast<std::size_t>(tokens * width))
    fail_data("{}: has {} bytes; the {} tokens of {} take {}: it is cut off or damaged", bin.string(),
              file->bytes().size(), tokens, idx.filename().string(), tokens * width);
  split.files.push_back(std::make_shared<const MappedEntries>(std::move(file), 0, tokens, width, most));
  return split;
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// The files NAME.bin of a folder whose names contain `word`, in the order of their names.
std::vector<fs::path> bins_of(const fs::path& folder, std::string_view word) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".bin" && entry.path().stem().string().find(word) != std::string::npos &&
        entry.is_regular_file(ignored))
      files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

bool is_megatron(const fs::path& path) {
  auto idx = path;
  return is_file(idx.replace_extension(".idx"));
}

ForeignSplit open_split(const fs::path& path, std::string_view word, std::int64_t most) {
  if (!is_folder(path)) {
    auto bin = path;
    bin.replace_extension(".bin");
    if (is_megatron(path)) return open_megatron(bin, most);
    return {.files = {open_bin(bin, most)}, .documents = std::nullopt};
  }
  ForeignSplit split;
  for (const auto& file : bins_of(path, word)) split.files.push_back(open_bin(file, most));
  if (split.files.empty()) fail_data("{}: holds no *{}*.bin", path.string(), word);
  return split;
}

// Reads the dictionaries, texts and whole numbers of a pickle (Python's pickletools describes the format).
class Unpickler {
 public:
  struct Value;
  using Dictionary = std::vector<std::pair<Value, Value>>;
  struct Value {
    std::variant<std::monostate, std::int64_t, std::string, std::shared_ptr<Dictionary>> content;
  };

  Unpickler(std::string_view bytes, const fs::path& path) : bytes_(bytes), path_(path) {}

  Value read() {
    for (;;) {
      const auto code = take<std::uint8_t>();
      if (code == '.') return pop();
      step(code);
    }
  }

 private:
  void step(std::uint8_t code) {
    switch (code) {
      case 0x80:
        take<std::uint8_t>();
        break;  // PROTO
      case 0x95:
        take<std::uint64_t>();
        break;  // FRAME
      case '}':
        push({std::make_shared<Dictionary>()});
        break;  // EMPTY_DICT
      case '(':
        marks_.push_back(stack_.size());
        break;  // MARK
      case 0x8c:
        push({take_text(take<std::uint8_t>())});
        break;  // SHORT_BINUNICODE
      case 'X':
        push({take_text(take<std::uint32_t>())});
        break;  // BINUNICODE
      case 'K':
        push({std::int64_t{take<std::uint8_t>()}});
        break;  // BININT1
      case 'M':
        push({std::int64_t{take<std::uint16_t>()}});
        break;  // BININT2
      case 'J':
        push({std::int64_t{take<std::int32_t>()}});
        break;  // BININT
      case 0x94:
        remember(memo_.size());
        break;  // MEMOIZE
      case 'q':
        remember(take<std::uint8_t>());
        break;  // BINPUT
      case 'r':
        remember(take<std::uint32_t>());
        break;  // LONG_BINPUT
      case 'h':
        recall(take<std::uint8_t>());
        break;  // BINGET
      case 'j':
        recall(take<std::uint32_t>());
        break;  // LONG_BINGET
      case 's':
        set_items(stack_.size() - 2);
        break;  // SETITEM
      case 'u':
        set_items(pop_mark());
        break;  // SETITEMS
      default:
        fail(fmt::format("the instruction 0x{:02x} is not one of a dictionary of texts and numbers", code));
    }
  }

  [[noreturn]] void fail(const std::string& why) const {
    fail_data("{}: cannot be read as Python's pickle: {}", path_.string(), why);
  }

  template <class Number>
  Number take() {
    const auto number = number_at<Number>(bytes_, place_, path_);
    place_ += sizeof number;
    return number;
  }
  std::string take_text(std::size_t size) {
    if (size > bytes_.size() - place_) fail("it ends too early");
    place_ += size;
    return std::string(bytes_.substr(place_ - size, size));
  }
  void push(Value value) { stack_.push_back(std::move(value)); }
  Value pop() {
    if (stack_.empty()) fail("a value is missing");
    auto value = std::move(stack_.back());
    stack_.pop_back();
    return value;
  }
  std::size_t pop_mark() {
    if (marks_.empty()) fail("a mark is missing");
    const auto mark = marks_.back();
    marks_.pop_back();
    return mark;
  }
  void remember(std::size_t key) {
    if (stack_.empty()) fail("a value is missing");
    memo_[key] = stack_.back();
  }
  void recall(std::size_t key) {
    if (!memo_.contains(key)) fail("a value is missing");
    push(memo_.at(key));
  }
  void set_items(std::size_t first) {
    if (first == 0 || first > stack_.size() || (stack_.size() - first) % 2 != 0) fail("a value is missing");
    auto* dictionary = std::get_if<std::shared_ptr<Dictionary>>(&stack_[first - 1].content);
    if (dictionary == nullptr) fail("a dictionary is missing");
    for (auto at = first; at < stack_.size(); at += 2)
      (*dictionary)->emplace_back(std::move(stack_[at]), std::move(stack_[at + 1]));
    stack_.resize(first);
  }

  std::string_view bytes_;
  const fs::path& path_;
  std::size_t place_ = 0;
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::size_t, Value> memo_;
};

// The tokenizer of characters in nanoGPT's meta.pkl: {"itos": {0: "\n", ...}, ...}.
std::shared_ptr<const Tokenizer> read_meta(const fs::path& path) {
  constexpr std::uintmax_t largest = 1 << 28;
  const auto bytes = read_file(path, largest, ExitCode::data);
  const auto root = Unpickler(bytes, path).read();
  const auto dictionary_of = [](const Unpickler::Value& value) {
    const auto* found = std::get_if<std::shared_ptr<Unpickler::Dictionary>>(&value.content);
    return found == nullptr ? Unpickler::Dictionary() : **found;
  };
  std::vector<std::string> characters;
  for (const auto& [name, value] : dictionary_of(root)) {
    if (const auto* text = std::get_if<std::string>(&name.content); text == nullptr || *text != "itos") continue;
    const auto items = dictionary_of(value);
    characters.resize(items.size());
    for (const auto& [id, character] : items) {
      const auto* number = std::get_if<std::int64_t>(&id.content);
      const auto* text = std::get_if<std::string>(&character.content);
      if (number == nullptr || text == nullptr || *number < 0 || *number >= std::ssize(items))
        fail_data("{}: itos is not a list of characters by id", path.string());
      characters[static_cast<std::size_t>(*number)] = *text;
    }
  }
  if (characters.empty()) fail_data("{}: has no dictionary itos of characters by id", path.string());
  return std::make_shared<CharacterTokenizer>(std::move(characters), path.string());
}

std::shared_ptr<const Tokenizer> tokenizer_of(const TextDataConfig& config, const fs::path& path) {
  if (has_own_tokenizer(path)) return read_meta(path / nanogpt_tokenizer);
  const bool is_named = is<PretrainedTokenizerOptions>(config.tokenizer) || is<ByteTokenizerOptions>(config.tokenizer);
  if (!is_named)
    fail_usage("data.tokenizer: {} has tokens without their tokenizer; name it: {{kind: pretrained, path: FOLDER}}",
               path.string());
  return make_tokenizer(config.tokenizer, "");
}

TokenizedSplit to_split(ForeignSplit split) {
  TokenizedSplit opened;
  opened.tokens = TokenArray(std::move(split.files));
  if (split.documents) opened.document_starts = std::move(*split.documents);
  return opened;
}

// The tokens from `first` to `last` of a split of one file.
ForeignSplit cut(const ForeignSplit& split, std::int64_t first, std::int64_t last) {
  ForeignSplit part;
  for (const auto& file : split.files) {
    const auto size = file->size();
    if (const auto begin = std::clamp<std::int64_t>(first, 0, size), end = std::clamp<std::int64_t>(last, 0, size);
        begin < end)
      part.files.push_back(file->part(begin, end - begin));
    first -= size;
    last -= size;
  }
  return part;
}

}  // namespace

bool is_foreign_tokens(const fs::path& path) {
  if (is_folder(path)) return !bins_of(path, "train").empty();
  return (path.extension() == ".bin" || path.extension() == ".idx") && is_file(path);
}

bool has_foreign_validation(const fs::path& path) { return is_folder(path) && !bins_of(path, "val").empty(); }

TokenizedText open_foreign_tokens(const TextDataConfig& config, std::shared_ptr<const Tokenizer> tokenizer) {
  const fs::path path(*config.path);
  if (!tokenizer) tokenizer = tokenizer_of(config, path);
  const auto most = tokenizer->vocabulary_size() - 1;
  auto train = open_split(path, "train", most);
  ForeignSplit validation;
  if (has_foreign_validation(path)) {
    validation = open_split(path, "val", most);
  } else if (config.validation_path) {
    validation = open_split(*config.validation_path, "val", most);
  } else {
    std::int64_t tokens = 0;
    for (const auto& file : train.files) tokens += file->size();
    const auto last = static_cast<std::int64_t>(static_cast<double>(tokens) * (1 - config.validation_fraction));
    const auto documents = train.documents;
    validation = cut(train, last, tokens);
    train = cut(train, 0, last);
    if (documents) {
      const auto next = std::ranges::lower_bound(*documents, last);
      train.documents.emplace(documents->begin(), next);
      validation.documents.emplace(1, 0);
      for (auto start = next; start != documents->end(); ++start)
        if (*start > last) validation.documents->push_back(*start - last);
    }
  }
  if (const bool needs_documents = config.separate_documents || packing_options(config.packing) != nullptr;
      needs_documents && (!train.documents || !validation.documents))
    fail_usage(
        "{}: {} has tokens without the ends of documents; only Megatron-LM's files and prepared tokens have them",
        config.separate_documents ? "data.separate_documents" : "data.packing", path.string());
  TokenizedText text{.path = path, .description = {{"path", path.string()}}, .tokenizer = tokenizer, .splits = {}};
  text.splits = {to_split(std::move(train)), to_split(std::move(validation))};
  text.description["tokens"] = text.splits[0].tokens.size() + text.splits[1].tokens.size();
  return text;
}

}  // namespace metaformer
