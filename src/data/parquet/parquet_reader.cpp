// Reads a column of texts from a Parquet file with Arrow's library. A library of its own, which the program loads only
// for such a file.

#include <arrow/array.h>
#include <arrow/io/file.h>
#include <arrow/table.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>

#include <string>

namespace {

using UseText = void (*)(void* context, const char* text, std::size_t size);

template <class Strings>
void use_each(const arrow::Array& array, UseText use, void* context) {
  const auto& texts = static_cast<const Strings&>(array);
  for (std::int64_t i = 0; i < texts.length(); ++i) {
    const auto text = texts.IsNull(i) ? std::string_view() : std::string_view(texts.GetView(i));
    use(context, text.data(), text.size());
  }
}

// "" or the reason why the file cannot be read.
std::string read(const char* path, const std::string& column, UseText use, void* context) {
  auto file = arrow::io::ReadableFile::Open(path);
  if (!file.ok()) return file.status().message();
  auto opened = parquet::arrow::OpenFile(*file, arrow::default_memory_pool());
  if (!opened.ok()) return opened.status().message();
  auto& reader = **opened;
  std::shared_ptr<arrow::Schema> schema;
  if (const auto status = reader.GetSchema(&schema); !status.ok()) return status.message();
  const int index = schema->GetFieldIndex(column);
  if (index < 0) return fmt::format("no column '{}'; it has {}", column, fmt::join(schema->field_names(), ", "));
  const auto kind = schema->field(index)->type()->id();
  if (kind != arrow::Type::STRING && kind != arrow::Type::LARGE_STRING)
    return fmt::format("column '{}' is {}, not text", column, schema->field(index)->type()->ToString());
  for (int group = 0; group < reader.num_row_groups(); ++group) {
    std::shared_ptr<arrow::ChunkedArray> texts;
    if (const auto status = reader.RowGroup(group)->Column(index)->Read(&texts); !status.ok()) return status.message();
    for (const auto& chunk : texts->chunks())
      kind == arrow::Type::STRING ? use_each<arrow::StringArray>(*chunk, use, context)
                                  : use_each<arrow::LargeStringArray>(*chunk, use, context);
  }
  return "";
}

}  // namespace

// Calls `use` with every text of the column, empty for a missing one. Returns "" or the reason why the file cannot be
// read, valid until the next call. Exceptions of `use` pass through.
extern "C" const char* metaformer_read_parquet(const char* path, const char* column, UseText use, void* context) {
  static thread_local std::string problem;
  problem = read(path, column, use, context);
  return problem.c_str();
}
