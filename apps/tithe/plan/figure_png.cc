// SPDX-License-Identifier: Apache-2.0
// Figures as PNG, by Cairo; figure_png_absent.cc stands here in builds without it.
#include <cairo/cairo.h>

#include <memory>
#include <numbers>

#include "figure.h"

namespace tithe::cli {
namespace {

constexpr double kScale =
    2;  // pixels of the picture per pixel of the page: sharp on dense screens, and printed

void use_color(cairo_t* to, const std::string& color) {
  const auto part = [&](std::size_t at) {
    return static_cast<double>(std::stoi(color.substr(at, 2), nullptr, 16)) / 255;
  };
  cairo_set_source_rgb(to, part(1), part(3), part(5));
}

void draw(cairo_t* to, const Figure::Line& line) {
  use_color(to, line.color);
  cairo_set_line_width(to, line.width);
  for (const auto& [x, y] : line.points) cairo_line_to(to, x, y);
  cairo_stroke(to);
  if (!line.dots) return;
  for (const auto& [x, y] : line.points) {
    cairo_arc(to, x, y, 1.5 * line.width, 0, 2 * std::numbers::pi);
    cairo_fill(to);
  }
}

void draw(cairo_t* to, const Figure::Text& text) {
  cairo_text_extents_t size;
  cairo_text_extents(to, text.text.c_str(), &size);
  const double back = text.anchor == Figure::Anchor::kStart    ? 0
                      : text.anchor == Figure::Anchor::kMiddle ? size.x_advance / 2
                                                               : size.x_advance;
  use_color(to, text.color);
  cairo_save(to);
  cairo_translate(to, text.x, text.y);
  if (text.upwards) cairo_rotate(to, -std::numbers::pi / 2);
  cairo_move_to(to, -back, 0);
  cairo_show_text(to, text.text.c_str());
  cairo_restore(to);
}

cairo_status_t keep(void* into, const unsigned char* bytes, unsigned int count) {
  auto& out = *static_cast<std::vector<std::uint8_t>*>(into);
  out.insert(out.end(), bytes, bytes + count);
  return CAIRO_STATUS_SUCCESS;
}

}  // namespace

bool can_png() { return true; }

Result<std::vector<std::uint8_t>> to_png(const Figure& figure) {
  const std::unique_ptr<cairo_surface_t, void (*)(cairo_surface_t*)> surface(
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(kScale * figure.width),
                                 static_cast<int>(kScale * figure.height)),
      cairo_surface_destroy);
  const std::unique_ptr<cairo_t, void (*)(cairo_t*)> to(cairo_create(surface.get()), cairo_destroy);
  cairo_scale(to.get(), kScale, kScale);
  use_color(to.get(), "#ffffff");
  cairo_paint(to.get());
  cairo_select_font_face(to.get(), "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(to.get(), kFontSize);
  for (const Figure::Line& l : figure.lines) draw(to.get(), l);
  for (const Figure::Bar& b : figure.bars) {
    use_color(to.get(), b.color);
    cairo_rectangle(to.get(), b.x, b.y, b.width, b.height);
    cairo_fill(to.get());
  }
  for (const Figure::Text& t : figure.texts) draw(to.get(), t);
  std::vector<std::uint8_t> out;
  cairo_status_t status = cairo_status(to.get());
  if (status == CAIRO_STATUS_SUCCESS) status = cairo_surface_write_to_png_stream(surface.get(), keep, &out);
  if (status != CAIRO_STATUS_SUCCESS)
    return Status(Code::kIo, std::string("the picture: ") + cairo_status_to_string(status));
  return out;
}

}  // namespace tithe::cli
