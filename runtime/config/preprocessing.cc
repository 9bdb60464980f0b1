#include "runtime/config/preprocessing.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

namespace lockstep::config {
namespace {

constexpr double kWhite = 255;
constexpr int kBilinear = 2;  // PIL.Image.Resampling.BILINEAR

Json channels(const std::vector<float>& numbers) {
  Json list = Json::array();
  for (const float number : numbers) list.push_back(std::stod(fmt::format("{}", number)));
  return list;
}

std::vector<float> channels_of(const Json& list) {
  std::vector<float> numbers;
  for (const Json& number : list) numbers.push_back(static_cast<float>(number.get<double>()));
  return numbers;
}

Json texts(const std::vector<std::string>& list) { return list; }

std::vector<std::string> texts_of(const Json& list) {
  std::vector<std::string> texts;
  for (const Json& text : list) texts.push_back(text.get<std::string>());
  return texts;
}

// CLIPImageProcessor is the one that resizes the shorter side and then crops the centre.
void write_images(const ImageInputs& images, Json& fields) {
  const Json sides = Json::object({{"height", images.height}, {"width", images.width}});
  fields["image_processor_type"] = "CLIPImageProcessor";
  fields["do_convert_rgb"] = images.channels() == 3;
  fields["do_resize"] = true;
  fields["size"] = images.resize > 0 ? Json::object({{"shortest_edge", images.resize}}) : sides;
  fields["resample"] = kBilinear;
  fields["do_center_crop"] = images.resize > 0;
  fields["crop_size"] = sides;
  fields["do_rescale"] = true;
  fields["rescale_factor"] = 1 / kWhite;
  fields["do_normalize"] = true;
  fields["image_mean"] = channels(images.mean);
  fields["image_std"] = channels(images.std);
}

ImageInputs images_of(const Json& fields) {
  ImageInputs images;
  images.height = fields["crop_size"]["height"].get<int64_t>();
  images.width = fields["crop_size"]["width"].get<int64_t>();
  images.resize = fields["size"].value<int64_t>("shortest_edge", 0);
  images.mean = channels_of(fields["image_mean"]);
  images.std = channels_of(fields["image_std"]);
  if (images.mean.size() != images.std.size() || images.features() <= 0)
    throw JsonError("image_mean, image_std and crop_size do not go together");
  return images;
}

Json json_of(const ColumnInputs& column) {
  Json json = Json::object({{"name", column.name}});
  json["kind"] = column.categorical ? "categorical" : "numeric";
  if (column.categorical) {
    json["categories"] = texts(column.categories);
  } else {
    json["mean"] = column.mean;
    json["std"] = column.std;
    json["missing_indicator"] = column.missing_indicator;
  }
  return json;
}

ColumnInputs column_of(const Json& json) {
  ColumnInputs column;
  column.name = json["name"].get<std::string>();
  column.categorical = json["kind"].get<std::string>() == "categorical";
  if (column.categorical) {
    column.categories = texts_of(json["categories"]);
  } else {
    column.mean = json["mean"].get<double>();
    column.std = json["std"].get<double>();
    column.missing_indicator = json["missing_indicator"].get<bool>();
  }
  return column;
}

bool has_scale(const TableInputs& table) { return table.target_mean != 0 || table.target_std != 1; }

void write_table(const TableInputs& table, Json& fields) {
  Json columns = Json::array();
  for (const ColumnInputs& column : table.columns) columns.push_back(json_of(column));
  Json target = Json::object({{"name", table.target}});
  if (has_scale(table)) {
    target["mean"] = table.target_mean;
    target["std"] = table.target_std;
  }
  fields["do_normalize"] = true;
  fields["columns"] = std::move(columns);
  fields["missing_values"] = texts(table.missing);
  fields["target"] = std::move(target);
}

TableInputs table_of(const Json& fields) {
  TableInputs table;
  for (const Json& column : fields["columns"]) table.columns.push_back(column_of(column));
  table.missing = texts_of(fields["missing_values"]);
  const Json& target = fields["target"];
  table.target = target["name"].get<std::string>();
  table.target_mean = target.value<double>("mean", 0);
  table.target_std = target.value<double>("std", 1);
  return table;
}

// One number if all channels have the same.
std::string list(const std::vector<float>& numbers) {
  const bool same = std::ranges::adjacent_find(numbers, std::not_equal_to<>()) == numbers.end();
  return same ? fmt::format("{}", numbers.front()) : fmt::format("{}", fmt::join(numbers, " "));
}

std::string describe(const ImageInputs& images) {
  const std::string size = fmt::format("{} x {}", images.height, images.width);
  return fmt::format(
      "pixels / 255, mean {}, std {}, {}",
      list(images.mean),
      list(images.std),
      images.resize > 0 ? fmt::format("shorter side {}, centre {}", images.resize, size) : size);
}

std::string describe(const TableInputs& table) {
  const auto categorical = std::ranges::count_if(table.columns, &ColumnInputs::categorical);
  const auto numeric = static_cast<int64_t>(table.columns.size()) - categorical;
  return fmt::format("{} numeric column{} standardised, {} categorical one-hot, target {}{}",
                     numeric,
                     numeric == 1 ? "" : "s",
                     categorical,
                     table.target,
                     has_scale(table) ? " standardised" : "");
}

}  // namespace

int64_t TableInputs::features() const {
  int64_t sum = 0;
  for (const ColumnInputs& column : columns) sum += column.features();
  return sum;
}

Json preprocessor_fields(const Preprocessing& preprocessing) {
  Json fields = Json::object();
  if (preprocessing.images)
    write_images(*preprocessing.images, fields);
  else if (preprocessing.table)
    write_table(*preprocessing.table, fields);
  else
    fields["do_normalize"] = false;
  return fields;
}

Preprocessing preprocessing_of(const Json& fields) {
  Preprocessing preprocessing;
  if (fields.contains("image_mean"))
    preprocessing.images = images_of(fields);
  else if (fields.contains("columns"))
    preprocessing.table = table_of(fields);
  return preprocessing;
}

void mark_as_in_network(Json& fields) {
  fields["do_normalize"] = false;
  if (fields.contains("do_rescale")) fields["do_rescale"] = false;
  if (const Json* const target = fields.find("target"); target != nullptr)
    fields["target"] = Json::object({{"name", target->at("name")}});
}

std::string describe(const Preprocessing& preprocessing) {
  if (preprocessing.images) return describe(*preprocessing.images);
  if (preprocessing.table) return describe(*preprocessing.table);
  return "numbers as they are";
}

}  // namespace lockstep::config
