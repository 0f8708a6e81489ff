#pragma once
// Remembers the value computed for a word between calls, because texts repeat words.

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

  // The value of `word`, computed by `find()` if it is not known; valid until the next call.
  template <class Find>
  Value& get(std::string_view word, Find find) {
    constexpr std::size_t longest_kept = 64;
    if (const auto known = values_.find(word); known != values_.end()) return known->second;
    if (word.size() > longest_kept) return unkept_ = find();
    if (values_.size() == most_words_) values_.clear();
    return values_.emplace(word, find()).first->second;
  }

 private:
  struct Hash {  // not noexcept, so that the map keeps the hashes and need not hash the words of a bucket again
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };

  std::size_t most_words_;
  std::unordered_map<std::string, Value, Hash, std::equal_to<>> values_;
  Value unkept_;
};

// For functions that are const and may run in several threads at once: each call borrows a memo and returns it.
template <class Value>
class WordMemoPool {
 public:
  explicit WordMemoPool(std::size_t most_words) : most_words_(most_words) {}

  // Calls `use(memo)` with a memo that no other thread uses.
  template <class Use>
  void borrow(Use use) {
    std::unique_lock lock(mutex_);
    if (free_.empty()) free_.push_back(std::make_unique<WordMemo<Value>>(most_words_));
    auto memo = std::move(free_.back());
    free_.pop_back();
    lock.unlock();
    use(*memo);
    lock.lock();
    free_.push_back(std::move(memo));
  }

 private:
  std::size_t most_words_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordMemo<Value>>> free_;
};

}  // namespace metaformer
