#pragma once
// What was found for a word, kept from call to call: texts say the same words over and over. For functions that are
// const and may run in several threads at once: each call borrows a memo of its own, and leaves it to a later one.

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace metaformer {

template <class Value>
class WordMemo {
 public:
  explicit WordMemo(std::size_t most_words) : most_words_(most_words) {}

  // The value of `word`, computed by `find()` unless it is kept; valid until the next call.
  template <class Find>
  const Value& get(std::string_view word, Find find) {
    if (const auto known = values_.find(word); known != values_.end()) return known->second;
    if (word.size() > longest_kept) return unkept_ = find();
    if (values_.size() == most_words_) values_.clear();
    return values_.try_emplace(std::string(word), find()).first->second;
  }

 private:
  static constexpr std::size_t longest_kept = 64;

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };

  std::size_t most_words_;
  std::unordered_map<std::string, Value, Hash, std::equal_to<>> values_;
  Value unkept_;
};

// The memos that no call is using.
template <class Value>
class WordMemoPool {
 public:
  explicit WordMemoPool(std::size_t most_words) : most_words_(most_words) {}

  // Calls `use(memo)` with a memo that nobody else uses meanwhile.
  template <class Use>
  void borrow(Use use) {
    auto memo = take();
    use(*memo);
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(memo));
  }

 private:
  std::unique_ptr<WordMemo<Value>> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<WordMemo<Value>>(most_words_);
    auto memo = std::move(free_.back());
    free_.pop_back();
    return memo;
  }

  std::size_t most_words_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordMemo<Value>>> free_;
};

}  // namespace metaformer
