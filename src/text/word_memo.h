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
    const auto hash = std::hash<std::string_view>()(word);
    if (const auto entry = find_slot(word, hash).entry; entry != 0) return entries_[entry - 1].value;
    if (word.size() > longest_kept) return unkept_ = find();
    if (entries_.size() == most_words_) {
      entries_.clear();
      slots_.assign(slots_.size(), {});
    }
    if (entries_.size() == slots_.size() / 2) grow();
    entries_.push_back({std::string(word), find()});
    find_slot(word, hash) = {tag(hash), static_cast<std::uint32_t>(entries_.size())};
    return entries_.back().value;
  }

 private:
  static constexpr std::size_t longest_kept = 64;

  struct Entry {
    std::string word;
    Value value;
  };
  struct Slot {
    std::uint32_t tag = 0;    // the bits of the hash that do not select the slot
    std::uint32_t entry = 0;  // its number, counted from 1; 0: free
  };

  static std::uint32_t tag(std::size_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

  // The slot of the word, or the free one where it belongs.
  Slot& find_slot(std::string_view word, std::size_t hash) {
    for (auto at = hash;; ++at) {
      auto& slot = slots_[at & (slots_.size() - 1)];
      if (slot.entry == 0 || (slot.tag == tag(hash) && entries_[slot.entry - 1].word == word)) return slot;
    }
  }

  void grow() {
    slots_.assign(2 * slots_.size(), {});
    for (std::uint32_t number = 0; const auto& entry : entries_) {
      const auto hash = std::hash<std::string_view>()(entry.word);
      find_slot(entry.word, hash) = {tag(hash), ++number};
    }
  }

  std::size_t most_words_;
  std::vector<Slot> slots_;  // a power of two; at least half of them are free
  std::vector<Entry> entries_;
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
