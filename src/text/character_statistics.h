#pragma once
// Counts of the characters of a text, and the scripts of its letters.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace metaformer {

class CharacterStatistics {
 public:
  CharacterStatistics();

  // Errors (exit code 3): not UTF-8. Throws Interrupted when a signal asks to stop.
  void add(std::string_view text);

  std::int64_t characters() const { return characters_; }
  std::int64_t distinct() const;

  // The scripts of the letters by Unicode's property Script, such as Latin, Cyrillic or Han, each with its fraction of
  // all letters; the most frequent first.
  std::vector<std::pair<std::string, double>> scripts() const;

  // The fraction of the letters that belong to scripts without spaces between words, such as Han and Thai.
  double fraction_without_spaces() const;

 private:
  std::int64_t letters() const;

  std::int64_t characters_ = 0;
  std::vector<bool> seen_;            // by code point
  std::vector<std::int64_t> counts_;  // of letters, by ICU's number of the script
};

}  // namespace metaformer
