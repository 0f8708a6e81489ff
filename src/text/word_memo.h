#pragma once
// Remembers the value computed for a word between calls, because texts repeat words.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace metaformer {

// A hash table with open addressing: std::unordered_map waits for memory, and takes 1.5 times as long.
template <class Value>
class WordMemo {
 public:
  explicit WordMemo(std::size_t most_words) : most_words_(most_words), slots_(std::size_t{1} << 12) {}

  // The value of `word`, computed by `find()` if it is not in the table; valid until the next call.
  template <class Find>
  Value& get(std::string_view word, Find find) {
    if (const auto number = slot(word).number; number != 0) return entries_[number - 1].second;
    if (word.size() > longest_kept) return unkept_ = find();
    if (entries_.size() == most_words_) {
      entries_.clear();
      slots_.assign(slots_.size(), {});
    }
    entries_.emplace_back(word, find());
    add(entries_.size());
    if (entries_.size() > slots_.size() / 2) {
      slots_.assign(2 * slots_.size(), {});
      for (std::size_t number = 1; number <= entries_.size(); ++number) add(number);
    }
    return entries_.back().second;
  }

 private:
  static constexpr std::size_t longest_kept = 64;

  struct Slot {
    std::uint32_t tag = 0;     // the bits of the hash that do not select the slot
    std::uint32_t number = 0;  // of the entry, counted from 1; 0: free
  };

  // The slot of the word, or the free one where it belongs, with its tag.
  Slot& slot(std::string_view word) {
    const auto hash = std::hash<std::string_view>()(word);
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    for (auto at = hash;; ++at) {
      auto& slot = slots_[at & (slots_.size() - 1)];
      if (slot.number == 0) slot.tag = tag;
      if (slot.number == 0 || (slot.tag == tag && entries_[slot.number - 1].first == word)) return slot;
    }
  }

  void add(std::size_t number) { slot(entries_[number - 1].first).number = static_cast<std::uint32_t>(number); }

  std::size_t most_words_;
  std::vector<Slot> slots_;  // a power of two; at least half of them are free
  std::vector<std::pair<std::string, Value>> entries_;
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
