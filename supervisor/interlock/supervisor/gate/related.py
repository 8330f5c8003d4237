"""English words that stand for the same matter, since people and tools choose different ones."""

from __future__ import annotations

from functools import cache
from typing import Final

from interlock.supervisor.gate.words import english

_GROUPS: Final = """
music song playlist artist album track band lyrics singer
movie film cinema actor
series show episode tv television
video clip footage
image picture photo photograph
drawing sketch illustration paint
audio sound recording voice
speech speak pronunciation tts
weather forecast temperature rain snow storm sunny humidity climate
map direction route navigation
place location nearby address
travel trip vacation holiday itinerary tourist destination
flight airline airport plane
hotel accommodation lodging stay hostel
restaurant dining eat cafe
food recipe meal dish cook ingredient cuisine dinner lunch
nutrition diet calorie
workout exercise fitness gym training
health medical doctor symptom disease patient
drug medicine medication pharmacy
house apartment property estate rent home realtor mortgage
car vehicle automobile dealership
bike bicycle cycling
train railway rail
bus transit transport
package parcel shipment delivery tracking
shop store shopping purchase buy product
discount coupon deal promo voucher
price cost expensive cheap
gift present
stock share ticker equity market
invest investment portfolio
crypto cryptocurrency bitcoin blockchain ethereum token defi
currency exchange forex euro dollar
bank account transaction payment
loan mortgage interest credit
tax invoice bill
company business startup firm
finance financial earnings revenue balance
news headline journalist article
paper research study academic scholar publication literature arxiv journal
book novel author reading library
quote saying proverb
joke humor funny pun laugh
poem poetry verse
story tale fiction
game gaming play player
chess opponent checkmate
football soccer league match
basketball nba
sport team athlete score
job career hiring vacancy employment recruit candidate talent
resume cv
course learn lesson tutorial education class
exam test quiz question
school university college student
language translate translation
grammar spelling proofread
rephrase paraphrase rewrite polish
summary summarize overview
write writing draft essay
word dictionary definition meaning synonym vocabulary
email mail inbox
message chat sms conversation
phone call telephone number
contact address person
calendar appointment meeting event schedule
reminder alarm timer
task todo
note notebook
date day calendar weekday month year
time clock hour timezone
file folder directory
document doc pdf
spreadsheet excel sheet table
presentation slide deck powerpoint
chart graph plot diagram visualization
database sql query table
code programming developer snippet
repository repo git commit
bug issue ticket
container docker kubernetes
server host deploy
website webpage site page url link
domain dns whois hostname
seo keyword ranking backlink
search find lookup
screenshot capture thumbnail
browser web internet
password credential secret
security vulnerability threat malware phishing
advertisement ad campaign marketing
social post follower hashtag influencer
astrology horoscope zodiac
astronomy planet star moon space nasa
earthquake seismic
nature park hiking trail outdoor
animal pet dog cat
plant garden flower
fashion clothes outfit shirt
hair beauty makeup
color colour palette hex
font typography
logo brand icon
law legal lawyer court regulation
government politics election congress
religion bible prayer
gene protein mutation variant
chemistry molecule compound
math calculate calculator equation
convert conversion converter unit
statistics data analysis
remember memory recall
open launch start
close exit quit
history historical past
fact trivia
name username
random generator generate
verify validate validation check
barcode qr
energy electricity power
fuel gas petrol
wine beer brewery drink cocktail
coffee tea
wedding party celebration
child kid baby
love dating relationship
"""


@cache
def relatives() -> dict[str, tuple[str, ...]]:
    """Return the related terms by term."""
    found: dict[str, dict[str, None]] = {}
    for group in _GROUPS.split("\n"):
        terms = [term for word in group.split() for term in english(word)[:1]]
        for term in terms:
            found.setdefault(term, {}).update((other, None) for other in terms if other != term)
    return {term: tuple(others) for term, others in found.items()}
