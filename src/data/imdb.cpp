#include "data/imdb.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <tuple>
#include <unordered_set>

#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "core/signals.h"
#include "data/archive.h"
#include "data/digest.h"
#include "data/utf8.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t largest_review = 16 << 20;
constexpr std::int64_t block_of_ids = 125;

// What a file's name says.
struct ReviewName {
  bool is_test = false, is_positive = false;
  std::int64_t id = 0, rating = 0;
};

bool take_number(std::string_view& text, std::int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number >= 0;
}

// train/pos/ID_RATING.txt, whatever stands before; nothing for the other files of the corpus.
std::optional<ReviewName> parse_name(std::string_view path) {
  ReviewName name;
  const auto slash = path.rfind('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto folder = path.substr(0, slash);
  auto file = path.substr(slash + 1);
  const auto is_in = [&](std::string_view end) {
    return folder.ends_with(end) && (folder.size() == end.size() || folder[folder.size() - end.size() - 1] == '/');
  };
  name.is_test = is_in("test/pos") || is_in("test/neg");
  name.is_positive = is_in("test/pos") || is_in("train/pos");
  if (!name.is_test && !is_in("train/pos") && !is_in("train/neg")) return std::nullopt;
  if (!take_number(file, name.id) || !file.starts_with('_')) return std::nullopt;
  file.remove_prefix(1);
  if (!take_number(file, name.rating) || file != ".txt") return std::nullopt;
  return name;
}

struct Review {
  ReviewName name;
  LabelledText text;
};

// Why it cannot be used, or "".
std::string defect_of(const ReviewName& name, const std::string& text) {
  if (text.find('\0') != std::string::npos) return "the review has NUL bytes";
  if (auto defect = utf8_defect(text); !defect.empty()) return "the review is " + defect;
  if (is_blank(text)) return "the review is empty";
  const auto lowest = name.is_positive ? 7 : 1, highest = name.is_positive ? 10 : 4;
  if (name.rating < lowest || name.rating > highest)
    return fmt::format("a rating of {} is not {} ({} to {})", name.rating, name.is_positive ? "positive" : "negative",
                       lowest, highest);
  return "";
}

// Reviews of an unpacked folder, or of one that holds it, in no order.
void for_each_review_file(const fs::path& path, const std::function<void(const fs::path&, std::string&&)>& use) {
  for (const auto* half : {"train", "test"}) {
    for (const auto* label : {"neg", "pos"}) {
      const auto folder = fs::exists(path / "aclImdb") ? path / "aclImdb" / half / label : path / half / label;
      if (!fs::is_directory(folder)) continue;
      for (const auto& file : fs::directory_iterator(folder))
        if (file.is_regular_file() && parse_name(file.path().string()))
          use(file.path(), read_file(file.path(), largest_review, ExitCode::data));
    }
  }
}

// The corpus writes line breaks as <br />, which as words would be 6% of its tokens.
void make_line_breaks(std::string& text) {
  constexpr std::string_view markup = "<br />";
  std::size_t kept = 0;
  for (std::size_t at = 0; at < text.size();) {
    const bool breaks = std::string_view(text).substr(at).starts_with(markup);
    text[kept++] = breaks ? '\n' : text[at];
    at += breaks ? markup.size() : 1;
  }
  text.resize(kept);
}

class Reader {
 public:
  Reader(const fs::path& path, double malformed_limit) : path_(path), malformed_limit_(malformed_limit) {}

  std::vector<Review> read() {
    fs::is_directory(path_) ? read_folder() : read_archive();
    report_malformed();
    if (reviews_.empty())
      throw Error(ExitCode::data, fmt::format("{}: holds no reviews; files train/pos/ID_RATING.txt are expected, as in "
                                              "aclImdb_v1.tar.gz",
                                              path_.string()));
    std::sort(reviews_.begin(), reviews_.end(), [](const Review& a, const Review& b) {
      return std::tuple(a.name.is_test, a.name.is_positive, a.name.id, a.text.place) <
             std::tuple(b.name.is_test, b.name.is_positive, b.name.id, b.text.place);
    });
    return std::move(reviews_);
  }
  std::size_t malformed() const { return malformed_; }

 private:
  void read_archive() {
    for_each_archive_entry(
        path_, largest_review, [](std::string_view name) { return parse_name(name).has_value(); },
        [&](std::string_view name, std::string&& text) { add(name, std::move(text)); });
  }

  void read_folder() {
    for_each_review_file(path_, [&](const fs::path& file, std::string&& text) { add(file.string(), std::move(text)); });
  }

  void add(std::string_view path, std::string&& text) {
    throw_if_stopped();
    const auto name = *parse_name(path);
    make_line_breaks(text);
    if (auto defect = defect_of(name, text); !defect.empty()) {
      if (malformed_++ == 0) first_defect_ = fmt::format("{}: {}", path, defect);
      return;
    }
    reviews_.push_back({name, {std::move(text), name.is_positive ? "pos" : "neg", std::string(path)}});
  }

  void report_malformed() const {
    if (malformed_ == 0) return;
    const auto all = malformed_ + reviews_.size();
    const auto what = fmt::format("{} of {} reviews cannot be used; the first is {}", malformed_, all, first_defect_);
    if (static_cast<double>(malformed_) > malformed_limit_ * static_cast<double>(all))
      throw Error(ExitCode::data, fmt::format("{}: {}; data.malformed_limit tolerates a share of {}", path_.string(),
                                              what, malformed_limit_));
    log::warning("{}: {}", path_.string(), what);
  }

  fs::path path_;
  double malformed_limit_;
  std::vector<Review> reviews_;
  std::size_t malformed_ = 0;
  std::string first_defect_;
};

std::string block_of(std::int64_t id) { return fmt::format("imdb block {}", id / block_of_ids); }

// Texts that stand more than once, and texts of the test half that the training half has.
nlohmann::ordered_json count_copies(const std::vector<Review>& reviews) {
  std::unordered_set<std::string_view> train, test;
  std::int64_t copies_in_train = 0, copies_in_test = 0, leaked = 0;
  for (const auto& [name, text] : reviews)
    if (!name.is_test && !train.insert(text.text).second) ++copies_in_train;
  for (const auto& [name, text] : reviews) {
    if (!name.is_test) continue;
    if (!test.insert(text.text).second) ++copies_in_test;
    if (train.contains(text.text)) ++leaked;
  }
  return {{"copies_in_train", copies_in_train}, {"copies_in_test", copies_in_test}, {"test_texts_in_train", leaked}};
}

// Of an archive its bytes; of a folder the names and texts in order.
std::string digest_of(const fs::path& path, const std::vector<Review>& reviews) {
  if (!fs::is_directory(path)) return sha256_of_file(path);
  std::string all;
  for (const auto& review : reviews) all += sha256(review.text.text);
  return sha256(all);
}

}  // namespace

LabelledSplits load_imdb(const fs::path& path, const DataConfig& config) {
  Reader reader(path, config.malformed_limit);
  auto reviews = reader.read();
  LabelledSplits splits;
  auto copies = count_copies(reviews);
  splits.description["train"] = {{"path", path.string()},
                                 {"sha256", digest_of(path, reviews)},
                                 {"rows", reviews.size()},
                                 {"malformed", reader.malformed()}};
  splits.description["train"].update(copies);
  for (auto& [name, text] : reviews) {
    const auto split = name.is_test                                                 ? Split::test
                       : is_held_out(block_of(name.id), config.validation_fraction) ? Split::validation
                                                                                    : Split::train;
    splits[split].push_back(std::move(text));
  }
  log::info(
      "IMDb: {} reviews to train on, {} for validation, {} to test on; {} and {} copies within the halves, {} test "
      "reviews stand in the training half too",
      splits[Split::train].size(), splits[Split::validation].size(), splits[Split::test].size(),
      copies["copies_in_train"].get<std::int64_t>(), copies["copies_in_test"].get<std::int64_t>(),
      copies["test_texts_in_train"].get<std::int64_t>());
  if (splits[Split::train].empty() || splits[Split::validation].empty())
    throw Error(ExitCode::data, fmt::format("{}: too few reviews for data.validation_fraction {} to leave some on "
                                            "either side",
                                            path.string(), config.validation_fraction));
  return splits;
}

std::string digest_imdb_folder(const fs::path& folder) {
  std::vector<std::string> reviews;
  for_each_review_file(folder, [&](const fs::path& file, std::string&& text) {
    throw_if_stopped();
    reviews.push_back(file.lexically_relative(folder).string() + '\0' + sha256(text));
  });
  std::sort(reviews.begin(), reviews.end());
  return sha256(fmt::format("{}", fmt::join(reviews, "\n")));
}

}  // namespace metaformer
