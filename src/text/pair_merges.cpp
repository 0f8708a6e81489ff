#include "text/pair_merges.h"

#include <queue>

namespace metaformer {

static std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

void PairMerges::add(std::int32_t left, std::int32_t right, std::int32_t merged) {
  rules_[pair_of(left, right)] = {next_rank_++, merged};
}

const PairMerges::Rule* PairMerges::find(std::int32_t left, std::int32_t right) const {
  const auto found = rules_.find(pair_of(left, right));
  return found == rules_.end() ? nullptr : &found->second;
}

// The tokens of a word as a linked list, and the rules that apply in it.
class PairMerges::Word {
 public:
  Word(const PairMerges& merges, const std::vector<std::int32_t>& ids) : merges_(merges) {
    const auto size = static_cast<std::int32_t>(ids.size());
    for (std::int32_t i = 0; i < size; ++i)
      tokens_.push_back({.id = ids[static_cast<std::size_t>(i)], .previous = i - 1, .next = i + 1 < size ? i + 1 : -1});
    for (std::int32_t i = 0; i + 1 < size; ++i) add_candidate(i);
  }

  std::vector<std::int32_t> merge() {
    while (!candidates_.empty()) {
      const auto candidate = candidates_.top();
      candidates_.pop();
      if (applies(candidate)) apply(candidate);
    }
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i >= 0; i = at(i).next) ids.push_back(at(i).id);
    return ids;
  }

 private:
  struct Token {
    std::int32_t id, previous, next;
  };
  struct Candidate {
    std::int32_t rank, place, left, right, merged;
    bool operator<(const Candidate& other) const {  // the queue's greatest comes first
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };
  static constexpr std::int32_t gone = -1;  // the id of a token that was merged into the one before it

  Token& at(std::int32_t place) { return tokens_[static_cast<std::size_t>(place)]; }

  void add_candidate(std::int32_t place) {
    const auto next = at(place).next;
    if (next < 0) return;
    if (const auto* rule = merges_.find(at(place).id, at(next).id))
      candidates_.push({rule->rank, place, at(place).id, at(next).id, rule->merged});
  }

  bool applies(const Candidate& candidate) {
    const auto& token = at(candidate.place);
    return token.id == candidate.left && token.next >= 0 && at(token.next).id == candidate.right;
  }

  void apply(const Candidate& candidate) {
    auto& token = at(candidate.place);
    auto& merged = at(token.next);
    token.id = candidate.merged;
    token.next = merged.next;
    merged.id = gone;
    if (token.next >= 0) at(token.next).previous = candidate.place;
    add_candidate(candidate.place);
    if (token.previous >= 0) add_candidate(token.previous);
  }

  const PairMerges& merges_;
  std::vector<Token> tokens_;
  std::priority_queue<Candidate> candidates_;
};

std::vector<std::int32_t> PairMerges::merge(const std::vector<std::int32_t>& ids) const {
  return ids.size() < 2 ? ids : Word(*this, ids).merge();
}

}  // namespace metaformer
