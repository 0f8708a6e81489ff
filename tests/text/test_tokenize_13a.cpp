#include "support/catch.h"
#include "text/overlap.h"

namespace metaformer {

using Tokens = std::vector<std::string>;

TEST_CASE("marks are tokens, and numbers, abbreviated words and hyphens are cut as by mteval-v13a", "[13a]") {
  CHECK(tokenize_13a("Hello, (big) world!") == Tokens{"Hello", ",", "(", "big", ")", "world", "!"});
  CHECK(tokenize_13a("1,000.50 and .5 of 3.") == Tokens{"1,000.50", "and", ".", "5", "of", "3", "."});
  CHECK(tokenize_13a("U.S. e.g") == Tokens{"U", ".", "S", ".", "e", ".", "g"});
  CHECK(tokenize_13a("well-known 2-fold A-4 don't") == Tokens{"well-known", "2", "-", "fold", "A-4", "don't"});
  CHECK(tokenize_13a("a_b/c\\d~{e}") == Tokens{"a", "_", "b", "/", "c", "\\", "d", "~", "{", "e", "}"});
  // A stop that has been taken for one pair is not looked at for the next.
  CHECK(tokenize_13a("so... 4,,5") == Tokens{"so", ".", ".", ".", "4", ",", ",", "5"});
}

TEST_CASE("entities are unescaped one after the other", "[13a]") {
  CHECK(tokenize_13a("&quot;a&quot; &lt;b&gt; &amp;") == Tokens{"\"", "a", "\"", "<", "b", ">", "&"});
  CHECK(tokenize_13a("&amp;lt;") == Tokens{"<"});
  CHECK(tokenize_13a("&amp;quot;") == Tokens{"&", "quot", ";"});
  CHECK(tokenize_13a("a<skipped>b &apos;") == Tokens{"ab", "&", "apos", ";"});
}

TEST_CASE("a hyphen at the end of a line joins it with the next", "[13a]") {
  CHECK(tokenize_13a("hy-\nphen two\nlines") == Tokens{"hyphen", "two", "lines"});
  CHECK(tokenize_13a("--\n\nx") == Tokens{"-", "x"});
}

TEST_CASE("all white space of Unicode separates tokens, and other signs of Unicode stay in words", "[13a]") {
  CHECK(tokenize_13a(" a\tb\u00A0c\u2003d\u3000e\u0085f\x1Cg ") == Tokens{"a", "b", "c", "d", "e", "f", "g"});
  CHECK(tokenize_13a("„Größe“ 東京。 a\u200Bb") == Tokens{"„Größe“", "東京。", "a\u200Bb"});
  CHECK(tokenize_13a("é.à 京,都") == Tokens{"é", ".", "à", "京", ",", "都"});
}

TEST_CASE("text without tokens has none, and bytes that are not UTF-8 stay in words", "[13a]") {
  CHECK(tokenize_13a("").empty());
  CHECK(tokenize_13a(" \n\u00A0\t ").empty());
  CHECK(tokenize_13a("a\xFF.\xC3 \xE2\x80") == Tokens{"a\xFF", ".", "\xC3", "\xE2\x80"});
}

}  // namespace metaformer
