#pragma once
// Figures as files for papers.

#include <filesystem>
#include <set>
#include <string>

#include "figures/figure.h"

namespace metaformer::figures {

// Writes figures into a folder, which is created: NAME.svg and, with rsvg-convert of librsvg, NAME.pdf. Without that
// program there is one warning, and no PDF. Errors: exit code 1 when a file cannot be written.
class FigureFolder {
 public:
  explicit FigureFolder(std::filesystem::path folder);

  // Of `name` only letters, digits, '.', '-' and '_' stay; the others become '_'. A name that was there gets a number.
  void write(const std::string& name, const Figure& figure);

  int written() const { return written_; }

 private:
  std::filesystem::path folder_;
  std::set<std::string> names_;
  bool with_pdf_ = true;
  int written_ = 0;
};

}  // namespace metaformer::figures
