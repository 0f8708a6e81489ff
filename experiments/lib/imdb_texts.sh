# Texts made of IMDb's reviews. To be sourced after sweep.sh:
#
#   write_texts NAME...   if $DATA/NAME is missing, writes it by experiments/write_NAME.py from the archive IMDB
#
#   DATA=FOLDER   the folder of the texts; default /tmp/metaformer_texts, the same on every machine, because rows of results
#                 are identified by their config, which contains paths
#   IMDB=ARCHIVE  the archive of IMDb's reviews, with the unlabelled ones
# shellcheck shell=bash disable=SC2154
DATA=$(realpath -m -- "${DATA:-/tmp/metaformer_texts}")

write_texts() {
  local name
  for name in "$@"; do
    [[ -d $DATA/$name ]] && continue
    [[ -n ${IMDB:-} ]] || die 2 "set IMDB=ARCHIVE to the archive of IMDb's reviews, from which $DATA/$name is written"
    python3 "$experiments/write_$name.py" "$IMDB" "$DATA/.$name"
    mv -- "$DATA/.$name" "$DATA/$name"
  done
}
