"""German words for what tools are often about, since most servers speak English."""

from __future__ import annotations

from functools import cache
from typing import Final

from interlock.supervisor.gate.words import english, german

_WORDS: Final = """
abbrechen=cancel abfrage=query ablage=storage abonnement=subscription abonnieren=subscribe
absage=cancel abschnitt=section adresse=address aktie=stock,share aktien=stock,share
aktualisieren=update,refresh aktuell=current,latest alarm=alarm,alert album=album anfrage=request
angebot=offer anhang=attachment anhören=listen,play anlegen=create anleitung=guide,tutorial
anmelden=login anruf=call,phone anrufen=call,phone anwendung=application,app anzeigen=show,display
arbeit=work,job artikel=article arzt=doctor arznei=drug aufgabe=task,todo aufgaben=task,todo
aufnahme=recording,record aufnehmen=record,recording aufräumen=clean aufstehen=wake
aufzeichnen=record,recording aufzeichnung=recording,record ausdrucken=print ausgabe=output,expense
ausgeben=spend ausschalten=turn,switch auto=car autor=author backen=bake,recipe bahn=train,rail
bahnhof=station bank=bank bearbeiten=edit bedeutung=meaning,definition beenden=close,stop,end
begriff=term benachrichtigung=notification berechnen=calculate,compute bericht=report
bestellen=order bestellung=order bewertung=rating,review bezahlen=pay,payment bild=image,picture
bilder=image,picture blatt=sheet blog=blog börse=stock,exchange brief=letter,mail browser=browser
buch=book bücher=book buchen=book,booking buchstabieren=spell,spelling buchstabe=letter,spelling
buchung=booking,reservation code=code datei=file dateien=file daten=data datenbank=database
datum=date dauer=duration definition=definition diagramm=chart,diagram dokument=document
domäne=domain drucken=print drucker=printer eigenschaft=property einkaufen=shopping
einkauf=shopping,purchase einladen=invite einladung=invitation einschalten=turn,switch
einstellung=setting einstellungen=setting einträge=entry eintrag=entry entfernung=distance
entwurf=draft ereignis=event ergebnis=result,score erinnern=remind,reminder
erinnerung=reminder,remind erinnere=remind,reminder ernährung=nutrition erstellen=create
erzählen=tell essen=food,meal,eat fahren=drive,travel fahrplan=schedule,timetable
fahrrad=bike,bicycle fahrt=trip,ride fakt=fact fakten=fact familie=family farbe=color,colour
farben=color,colour feiertag=holiday fehler=error,bug,issue fenster=window fernsehen=tv,television
fernseher=tv,television figur=character film=movie,film filme=movie,film finanzen=finance
finden=find,search firma=company flasche=bottle flug=flight flüge=flight flughafen=airport
foto=photo,image fotos=photo,image frage=question freund=friend funktion=function
fußball=football,soccer garten=garden gebet=prayer geburtstag=birthday gedicht=poem gehalt=salary
geld=money gemälde=painting generieren=generate gericht=dish,recipe gerät=device geräte=device
geräusch=sound geschenk=gift geschichte=history,story geschwindigkeit=speed gesellschaft=company
gesetz=law gespräch=conversation gesundheit=health getränk=drink gewicht=weight gewinn=profit
grafik=graphic,chart größe=size gruppe=group gutschein=coupon,voucher,discount
handel=trade,trading handy=phone,mobile haus=house,home häuser=house,home heizung=heating
helligkeit=brightness herunterladen=download himmel=sky hinzufügen=add hochladen=upload
hören=listen,play hotel=hotel hund=dog hymne=anthem immobilie=property,estate impfung=vaccine
information=information inhalt=content installieren=install irrtum=error jahr=year jahre=year
jahrestag=anniversary kalender=calendar kalorien=calorie kamera=camera karte=map,card
karten=map,card katze=cat kauf=purchase,buy kaufen=buy,purchase kino=cinema,movie klima=climate
kochen=cook,recipe kommentar=comment konferenz=conference konto=account kontakt=contact
konvertieren=convert kosten=cost,price krankheit=disease kredit=credit,loan kunde=customer
kunst=art kurs=course,rate kurse=course,rate kryptowährung=cryptocurrency,crypto
küche=kitchen,recipe laden=load,shop land=country länder=country lampe=light lauf=run
laufen=run,running laut=loud,volume lautstärke=volume lebensmittel=food,grocery leerzeichen=space
lernen=learn,study lesen=read lesezeichen=bookmark licht=light lied=song,music lieder=song,music
liste=list löschen=delete,remove lustig=funny,joke luft=air mahlzeit=meal mannschaft=team
markt=market medikament=drug,medication medizin=medicine meldung=message,news mensch=human
menü=menu merken=remember,save messen=measure miete=rent,rental mitglied=member
mitteilung=message,notification möbel=furniture monat=month mond=moon musik=music mut=courage
nachricht=message,news nachrichten=news,message nachschlagen=lookup,search nahverkehr=transit
name=name netz=network netzwerk=network niederschlag=rain,precipitation notiz=note notizen=note
nummer=number öffnen=open,launch ordner=folder,directory ort=place,location orte=place,location
paket=package,parcel parken=parking passwort=password patient=patient pflanze=plant planen=plan
platz=place politik=politics post=mail,post preis=price preise=price produkt=product
programm=program,application programme=program,application programmieren=programming
projekt=project prüfen=check prüfung=exam,check quelle=source rabatt=discount radio=radio
raum=room rechnen=calculate,math rechner=calculator rechnung=invoice,bill rechtschreibung=spelling
regen=rain,weather regnen=rain,weather regnet=rain,weather reise=travel,trip reisen=travel,trip
reservieren=reservation,booking restaurant=restaurant rezept=recipe rezepte=recipe
richtung=direction route=route sammlung=collection satz=sentence schalten=switch
schauspieler=actor schicken=send schlaf=sleep schließen=close schnee=snow,weather
schneit=snow,weather schreiben=write schrift=font schritt=step schule=school schulden=debt
seite=page,site sender=channel,station,broadcast senden=send serie=series,show server=server
sicherheit=security sicherung=backup sonne=sun,weather sonnenaufgang=sunrise
sonnenuntergang=sunset sonnig=sunny,weather spanne=range speichern=save,store spiel=game
spiele=game spielen=play,game spieler=player spielstand=score sport=sport sprache=language,speech
sprechen=speak,speech spruch=quote,saying spur=track stadt=city städte=city standort=location
start=start starten=start,launch statistik=statistics status=status stelle=job,position
stellen=set steuer=tax steuern=tax,control stimme=voice stimmung=mood stopp=stop strasse=street
straße=street,road strecke=route,distance strom=power,electricity stunde=hour suche=search,find
suchen=search,find tabelle=table,spreadsheet tag=day tage=day taschenrechner=calculator
teilen=share telefon=phone temperatur=temperature,weather termin=appointment,event,calendar
termine=appointment,event,calendar text=text thema=topic ticket=ticket tier=animal tiere=animal
titel=title ton=sound,audio treffen=meeting übersetzen=translate,translation
übersetzung=translation,translate übersicht=overview,summary übung=exercise,workout uhr=clock,time
uhrzeit=time,clock umrechnen=convert umrechnung=conversion,convert umwandeln=convert
umwelt=environment unfall=accident unternehmen=company,business
unterhaltung=entertainment,conversation unterricht=lesson urlaub=vacation,holiday
vergleich=comparison,compare vergleichen=compare,comparison verkauf=sale verkaufen=sell
verkehr=traffic verlauf=history veröffentlichen=publish verschieben=move versicherung=insurance
version=version vertrag=contract verzeichnis=directory video=video vogel=bird vorhersage=forecast
vorlage=template vorlesen=read,speech vorschlag=suggestion,recommendation vorstellung=presentation
wählen=choose währung=currency wandern=hiking wasser=water wecken=alarm,wake wecker=alarm
wegbeschreibung=direction,route weg=route,way wein=wine welt=world weltweit=world,global
wert=value wetter=weather wettervorhersage=weather,forecast wiederholen=repeat wind=wind,weather
wissen=knowledge,fact wissenschaft=science witz=joke witze=joke woche=week wochenende=weekend
wochentag=weekday wohnung=apartment wort=word wörter=word wörterbuch=dictionary zahl=number
zahlen=number,pay zeichnen=draw zeichnung=drawing zeit=time zeitleiste=timeline zeitplan=schedule
zeitung=newspaper,news zeitzone=timezone zimmer=room zitat=quote zitate=quote zoll=customs
zufall=random zufällig=random zug=train züge=train zusammenfassen=summarize,summary
zusammenfassung=summary,summarize heute=today morgen=tomorrow gestern=yesterday jetzt=now
"""


@cache
def meanings() -> dict[str, tuple[str, ...]]:
    """Return the English terms by German term."""
    found: dict[str, tuple[str, ...]] = {}
    for pair in _WORDS.split():
        word, _, others = pair.partition("=")
        terms = tuple(dict.fromkeys(t for other in others.split(",") for t in english(other)))
        for term in german(word)[:1]:
            found[term] = tuple(dict.fromkeys(found.get(term, ()) + terms))
    return found
